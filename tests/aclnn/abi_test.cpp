// Values that clients were compiled with, written down again from the interface contract (sections 3.2 and 3.3), not
// from the headers.
#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

#include "acl/acl.h"
#include "acl/acl_op_compiler.h"
#include "aclnn/aclnn_base.h"

namespace {

static_assert(std::is_same_v<aclError, int>);
static_assert(std::is_same_v<aclrtStream, void*>);
static_assert(std::is_same_v<aclrtEvent, void*>);
static_assert(std::is_same_v<aclrtContext, void*>);
static_assert(std::is_same_v<aclFloat16, std::uint16_t>);
static_assert(std::is_same_v<aclnnStatus, std::int32_t>);

// Enumerations travel as int, whatever their values.
static_assert(std::is_same_v<std::underlying_type_t<aclDataType>, int>);
static_assert(std::is_same_v<std::underlying_type_t<aclrtLastErrLevel>, int>);
static_assert(sizeof(aclDataType) == 4 && sizeof(aclFormat) == 4 && sizeof(aclrtMemcpyKind) == 4);
static_assert(sizeof(aclrtMemMallocPolicy) == 4 && sizeof(aclrtMemAttr) == 4 && sizeof(aclSysParamOpt) == 4);
static_assert(sizeof(aclrtEventStatus) == 4 && sizeof(aclrtStreamStatus) == 4 && sizeof(aclrtRunMode) == 4);
static_assert(sizeof(aclrtEventRecordedStatus) == 4 && sizeof(aclrtEventWaitStatus) == 4);
static_assert(sizeof(aclrtCallbackBlockType) == 4 && sizeof(aclLogLevel) == 4 && sizeof(aclCompileOpt) == 4);

static_assert(ACL_DT_UNDEFINED == -1);
static_assert(ACL_FLOAT == 0);
static_assert(ACL_FLOAT16 == 1);
static_assert(ACL_INT8 == 2);
static_assert(ACL_INT32 == 3);
static_assert(ACL_UINT8 == 4);
static_assert(ACL_INT16 == 6);
static_assert(ACL_UINT16 == 7);
static_assert(ACL_UINT32 == 8);
static_assert(ACL_INT64 == 9);
static_assert(ACL_UINT64 == 10);
static_assert(ACL_DOUBLE == 11);
static_assert(ACL_BOOL == 12);
static_assert(ACL_STRING == 13);
static_assert(ACL_COMPLEX64 == 16);
static_assert(ACL_COMPLEX128 == 17);
static_assert(ACL_BF16 == 27);
static_assert(ACL_INT4 == 29);
static_assert(ACL_UINT1 == 30);
static_assert(ACL_COMPLEX32 == 33);
static_assert(ACL_HIFLOAT8 == 34);
static_assert(ACL_FLOAT8_E5M2 == 35);
static_assert(ACL_FLOAT8_E4M3FN == 36);
static_assert(ACL_FLOAT8_E8M0 == 37);
static_assert(ACL_FLOAT6_E3M2 == 38);
static_assert(ACL_FLOAT6_E2M3 == 39);
static_assert(ACL_FLOAT4_E2M1 == 40);
static_assert(ACL_FLOAT4_E1M2 == 41);

static_assert(ACL_FORMAT_UNDEFINED == -1);
static_assert(ACL_FORMAT_NCHW == 0);
static_assert(ACL_FORMAT_NHWC == 1);
static_assert(ACL_FORMAT_ND == 2);
static_assert(ACL_FORMAT_NC1HWC0 == 3);
static_assert(ACL_FORMAT_FRACTAL_Z == 4);
static_assert(ACL_FORMAT_NC1HWC0_C04 == 12);
static_assert(ACL_FORMAT_HWCN == 16);
static_assert(ACL_FORMAT_NDHWC == 27);
static_assert(ACL_FORMAT_FRACTAL_NZ == 29);
static_assert(ACL_FORMAT_NCDHW == 30);
static_assert(ACL_FORMAT_NDC1HWC0 == 32);
static_assert(ACL_FRACTAL_Z_3D == 33);
static_assert(ACL_FORMAT_NC == 35);
static_assert(ACL_FORMAT_NCL == 47);

static_assert(ACL_MEMCPY_HOST_TO_HOST == 0);
static_assert(ACL_MEMCPY_HOST_TO_DEVICE == 1);
static_assert(ACL_MEMCPY_DEVICE_TO_HOST == 2);
static_assert(ACL_MEMCPY_DEVICE_TO_DEVICE == 3);
static_assert(ACL_MEMCPY_DEFAULT == 4);

static_assert(ACL_MEM_MALLOC_HUGE_FIRST == 0);
static_assert(ACL_MEM_MALLOC_HUGE_ONLY == 1);
static_assert(ACL_MEM_MALLOC_NORMAL_ONLY == 2);
static_assert(ACL_MEM_MALLOC_HUGE_FIRST_P2P == 3);
static_assert(ACL_MEM_MALLOC_HUGE_ONLY_P2P == 4);
static_assert(ACL_MEM_MALLOC_NORMAL_ONLY_P2P == 5);
static_assert(ACL_MEM_MALLOC_HUGE1G_ONLY == 6);
static_assert(ACL_MEM_MALLOC_HUGE1G_ONLY_P2P == 7);
static_assert(ACL_MEM_TYPE_LOW_BAND_WIDTH == 0x0100);
static_assert(ACL_MEM_TYPE_HIGH_BAND_WIDTH == 0x1000);

static_assert(ACL_DDR_MEM == 0);
static_assert(ACL_HBM_MEM == 1);
static_assert(ACL_DDR_MEM_HUGE == 2);
static_assert(ACL_DDR_MEM_NORMAL == 3);
static_assert(ACL_HBM_MEM_HUGE == 4);
static_assert(ACL_HBM_MEM_NORMAL == 5);
static_assert(ACL_DDR_MEM_P2P_HUGE == 6);
static_assert(ACL_DDR_MEM_P2P_NORMAL == 7);
static_assert(ACL_HBM_MEM_P2P_HUGE == 8);
static_assert(ACL_HBM_MEM_P2P_NORMAL == 9);

static_assert(ACL_DEVICE == 0);
static_assert(ACL_HOST == 1);

static_assert(ACL_EVENT_STATUS_COMPLETE == 0);
static_assert(ACL_EVENT_STATUS_NOT_READY == 1);
static_assert(ACL_EVENT_STATUS_RESERVED == 2);
static_assert(ACL_EVENT_RECORDED_STATUS_NOT_READY == 0);
static_assert(ACL_EVENT_RECORDED_STATUS_COMPLETE == 1);
static_assert(ACL_EVENT_WAIT_STATUS_COMPLETE == 0);
static_assert(ACL_EVENT_WAIT_STATUS_NOT_READY == 1);
static_assert(ACL_EVENT_WAIT_STATUS_RESERVED == 0xFFFF);
static_assert(ACL_STREAM_STATUS_COMPLETE == 0);
static_assert(ACL_STREAM_STATUS_NOT_READY == 1);
static_assert(ACL_STREAM_STATUS_RESERVED == 0xFFFF);

static_assert(ACL_CALLBACK_NO_BLOCK == 0);
static_assert(ACL_CALLBACK_BLOCK == 1);

static_assert(ACL_EVENT_SYNC == 1);
static_assert(ACL_EVENT_CAPTURE_STREAM_PROGRESS == 2);
static_assert(ACL_EVENT_TIME_LINE == 8);
static_assert(ACL_STREAM_FAST_LAUNCH == 1);
static_assert(ACL_STREAM_FAST_SYNC == 2);
static_assert(ACL_CONTINUE_ON_FAILURE == 0);
static_assert(ACL_STOP_ON_FAILURE == 1);

static_assert(ACL_OPT_DETERMINISTIC == 0);
static_assert(ACL_OPT_ENABLE_DEBUG_KERNEL == 1);
static_assert(ACL_OPT_STRONG_CONSISTENCY == 2);

static_assert(ACL_OP_JIT_COMPILE == 10);
static_assert(ACL_OP_DETERMINISTIC == 11);

static_assert(ACL_DEBUG == 0);
static_assert(ACL_INFO == 1);
static_assert(ACL_WARNING == 2);
static_assert(ACL_ERROR == 3);

static_assert(ACL_RT_THREAD_LEVEL == 0);

static_assert(ACL_MAJOR_VERSION == 1);
static_assert(ACL_MINOR_VERSION == 10);
static_assert(ACL_PATCH_VERSION == 0);

static_assert(ACL_SUCCESS == 0);
static_assert(ACL_ERROR_NONE == 0);
static_assert(ACL_ERROR_INVALID_PARAM == 100000);
static_assert(ACL_ERROR_UNINITIALIZE == 100001);
static_assert(ACL_ERROR_REPEAT_INITIALIZE == 100002);
static_assert(ACL_ERROR_INVALID_FILE == 100003);
static_assert(ACL_ERROR_WRITE_FILE == 100004);
static_assert(ACL_ERROR_INVALID_FILE_SIZE == 100005);
static_assert(ACL_ERROR_PARSE_FILE == 100006);
static_assert(ACL_ERROR_FILE_MISSING_ATTR == 100007);
static_assert(ACL_ERROR_FILE_ATTR_INVALID == 100008);
static_assert(ACL_ERROR_INVALID_DUMP_CONFIG == 100009);
static_assert(ACL_ERROR_INVALID_PROFILING_CONFIG == 100010);
static_assert(ACL_ERROR_INVALID_MODEL_ID == 100011);
static_assert(ACL_ERROR_DESERIALIZE_MODEL == 100012);
static_assert(ACL_ERROR_PARSE_MODEL == 100013);
static_assert(ACL_ERROR_READ_MODEL_FAILURE == 100014);
static_assert(ACL_ERROR_MODEL_SIZE_INVALID == 100015);
static_assert(ACL_ERROR_MODEL_MISSING_ATTR == 100016);
static_assert(ACL_ERROR_MODEL_INPUT_NOT_MATCH == 100017);
static_assert(ACL_ERROR_MODEL_OUTPUT_NOT_MATCH == 100018);
static_assert(ACL_ERROR_MODEL_NOT_DYNAMIC == 100019);
static_assert(ACL_ERROR_OP_TYPE_NOT_MATCH == 100020);
static_assert(ACL_ERROR_OP_INPUT_NOT_MATCH == 100021);
static_assert(ACL_ERROR_OP_OUTPUT_NOT_MATCH == 100022);
static_assert(ACL_ERROR_OP_ATTR_NOT_MATCH == 100023);
static_assert(ACL_ERROR_OP_NOT_FOUND == 100024);
static_assert(ACL_ERROR_OP_LOAD_FAILED == 100025);
static_assert(ACL_ERROR_UNSUPPORTED_DATA_TYPE == 100026);
static_assert(ACL_ERROR_FORMAT_NOT_MATCH == 100027);
static_assert(ACL_ERROR_BIN_SELECTOR_NOT_REGISTERED == 100028);
static_assert(ACL_ERROR_KERNEL_NOT_FOUND == 100029);
static_assert(ACL_ERROR_BIN_SELECTOR_ALREADY_REGISTERED == 100030);
static_assert(ACL_ERROR_KERNEL_ALREADY_REGISTERED == 100031);
static_assert(ACL_ERROR_INVALID_QUEUE_ID == 100032);
static_assert(ACL_ERROR_REPEAT_SUBSCRIBE == 100033);
static_assert(ACL_ERROR_STREAM_NOT_SUBSCRIBE == 100034);
static_assert(ACL_ERROR_THREAD_NOT_SUBSCRIBE == 100035);
static_assert(ACL_ERROR_WAIT_CALLBACK_TIMEOUT == 100036);
static_assert(ACL_ERROR_REPEAT_FINALIZE == 100037);
static_assert(ACL_ERROR_NOT_STATIC_AIPP == 100038);
static_assert(ACL_ERROR_COMPILING_STUB_MODE == 100039);
static_assert(ACL_ERROR_GROUP_NOT_SET == 100040);
static_assert(ACL_ERROR_GROUP_NOT_CREATE == 100041);
static_assert(ACL_ERROR_PROF_ALREADY_RUN == 100042);
static_assert(ACL_ERROR_PROF_NOT_RUN == 100043);
static_assert(ACL_ERROR_DUMP_ALREADY_RUN == 100044);
static_assert(ACL_ERROR_DUMP_NOT_RUN == 100045);
static_assert(ACL_ERROR_PROF_REPEAT_SUBSCRIBE == 148046);
static_assert(ACL_ERROR_PROF_API_CONFLICT == 148047);
static_assert(ACL_ERROR_INVALID_MAX_OPQUEUE_NUM_CONFIG == 148048);
static_assert(ACL_ERROR_INVALID_OPP_PATH == 148049);
static_assert(ACL_ERROR_OP_UNSUPPORTED_DYNAMIC == 148050);
static_assert(ACL_ERROR_RELATIVE_RESOURCE_NOT_CLEARED == 148051);
static_assert(ACL_ERROR_UNSUPPORTED_JPEG == 148052);
static_assert(ACL_ERROR_INVALID_BUNDLE_MODEL_ID == 148053);
static_assert(ACL_ERROR_BAD_ALLOC == 200000);
static_assert(ACL_ERROR_API_NOT_SUPPORT == 200001);
static_assert(ACL_ERROR_INVALID_DEVICE == 200002);
static_assert(ACL_ERROR_MEMORY_ADDRESS_UNALIGNED == 200003);
static_assert(ACL_ERROR_RESOURCE_NOT_MATCH == 200004);
static_assert(ACL_ERROR_INVALID_RESOURCE_HANDLE == 200005);
static_assert(ACL_ERROR_FEATURE_UNSUPPORTED == 200006);
static_assert(ACL_ERROR_PROF_MODULES_UNSUPPORTED == 200007);
static_assert(ACL_ERROR_STORAGE_OVER_LIMIT == 300000);
static_assert(ACL_ERROR_INTERNAL_ERROR == 500000);
static_assert(ACL_ERROR_FAILURE == 500001);
static_assert(ACL_ERROR_GE_FAILURE == 500002);
static_assert(ACL_ERROR_RT_FAILURE == 500003);
static_assert(ACL_ERROR_DRV_FAILURE == 500004);
static_assert(ACL_ERROR_PROFILING_FAILURE == 500005);

static_assert(ACL_ERROR_RT_PARAM_INVALID == 107000);
static_assert(ACL_ERROR_RT_INVALID_DEVICEID == 107001);
static_assert(ACL_ERROR_RT_CONTEXT_NULL == 107002);
static_assert(ACL_ERROR_RT_STREAM_CONTEXT == 107003);
static_assert(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID == 107006);
static_assert(ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL == 107007);
static_assert(ACL_ERROR_RT_ADDR_UNALIGNED == 107008);
static_assert(ACL_ERROR_RT_INVALID_MEMORY_TYPE == 107016);
static_assert(ACL_ERROR_RT_INVALID_HANDLE == 107017);
static_assert(ACL_ERROR_RT_INVALID_MALLOC_TYPE == 107018);
static_assert(ACL_ERROR_RT_WAIT_TIMEOUT == 107019);
static_assert(ACL_ERROR_RT_TASK_TIMEOUT == 107020);
static_assert(ACL_ERROR_RT_SYSPARAMOPT_NOT_SET == 107021);
static_assert(ACL_ERROR_RT_FEATURE_NOT_SUPPORT == 207000);
static_assert(ACL_ERROR_RT_MEMORY_ALLOCATION == 207001);
static_assert(ACL_ERROR_RT_MEMORY_FREE == 207002);
static_assert(ACL_ERROR_RT_NO_DEVICE == 207004);
static_assert(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL == 207005);
static_assert(ACL_ERROR_RT_NO_EVENT_RESOURCE == 207007);
static_assert(ACL_ERROR_RT_NO_STREAM_RESOURCE == 207008);
static_assert(ACL_ERROR_RT_OVER_LIMIT == 207012);
static_assert(ACL_ERROR_RT_REPEATED_INIT == 207015);
static_assert(ACL_ERROR_RT_DEVICE_OOM == 207018);
static_assert(ACL_ERROR_RT_INTERNAL_ERROR == 507000);
static_assert(ACL_ERROR_RT_STREAM_NOT_COMPLETE == 507004);
static_assert(ACL_ERROR_RT_EVENT_NOT_COMPLETE == 507006);
static_assert(ACL_ERROR_RT_AICORE_TIMEOUT == 507014);
static_assert(ACL_ERROR_RT_AICORE_EXCEPTION == 507015);
static_assert(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT == 507046);
static_assert(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT == 507047);

static_assert(OK == 0);
static_assert(ACLNN_SUCCESS == 0);
static_assert(ACLNN_ERR_PARAM_NULLPTR == 161001);
static_assert(ACLNN_ERR_PARAM_INVALID == 161002);
static_assert(ACLNN_ERR_RUNTIME_ERROR == 361001);
static_assert(ACLNN_ERR_INNER == 561000);
static_assert(ACLNN_ERR_INNER_INFERSHAPE_ERROR == 561001);
static_assert(ACLNN_ERR_INNER_TILING_ERROR == 561002);
static_assert(ACLNN_ERR_INNER_FIND_KERNEL_ERROR == 561003);
static_assert(ACLNN_ERR_INNER_CREATE_EXECUTOR == 561101);
static_assert(ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR == 561102);
static_assert(ACLNN_ERR_INNER_NULLPTR == 561103);
static_assert(ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE == 561104);
static_assert(ACLNN_ERR_INNER_KEY_CONFLICT == 561105);
static_assert(ACLNN_ERR_INNER_KEY_CONFILICT == 561105);
static_assert(ACLNN_ERR_INNER_INVALID_IMPL_MODE == 561106);
static_assert(ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND == 561107);
static_assert(ACLNN_ERR_INNER_LOAD_JSON_FAILED == 561108);

TEST(Abi, ValuesAreHeldByTheCompiler) {
  SUCCEED();
}

}  // namespace

// The runtime: device, contexts, streams, events, memory, callbacks, options.
//
// The device is this CPU, number 0, and its memory is the host's. Work runs in the calling thread: a call that starts
// work on a stream returns when it is done, unless it stands behind a callback that blocks the stream
// (aclrtLaunchCallback).
//
// Errors of all functions here: a null, foreign, freed or destroyed pointer or handle is ACL_ERROR_INVALID_PARAM, and
// so is a value outside its enumeration or a count that reaches beyond known memory. A null stream is the default
// stream of the thread's context; a thread that has set neither device nor context works in the default context of
// device 0. Every failure leaves a sentence for aclGetRecentErrMsg and a code for aclrtGetLastError.
#ifndef ONEHOT_ACL_ACL_RT_H_
#define ONEHOT_ACL_ACL_RT_H_

#include "acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// Flags of events and streams: accepted, without effect.
#define ACL_EVENT_SYNC 0x00000001u
#define ACL_EVENT_CAPTURE_STREAM_PROGRESS 0x00000002u
#define ACL_EVENT_TIME_LINE 0x00000008u
#define ACL_STREAM_FAST_LAUNCH 0x00000001u
#define ACL_STREAM_FAST_SYNC 0x00000002u
#define ACL_CONTINUE_ON_FAILURE 0x00000000u
#define ACL_STOP_ON_FAILURE 0x00000001u

typedef enum aclrtRunMode ACL_ENUM_TYPE { ACL_DEVICE = 0, ACL_HOST = 1 } aclrtRunMode;

typedef enum aclrtEventStatus ACL_ENUM_TYPE {
  ACL_EVENT_STATUS_COMPLETE = 0,
  ACL_EVENT_STATUS_NOT_READY = 1,
  ACL_EVENT_STATUS_RESERVED = 2
} aclrtEventStatus;

// Mind the order: the reverse of aclrtEventStatus.
typedef enum aclrtEventRecordedStatus ACL_ENUM_TYPE {
  ACL_EVENT_RECORDED_STATUS_NOT_READY = 0,
  ACL_EVENT_RECORDED_STATUS_COMPLETE = 1
} aclrtEventRecordedStatus;

typedef enum aclrtEventWaitStatus ACL_ENUM_TYPE {
  ACL_EVENT_WAIT_STATUS_COMPLETE = 0,
  ACL_EVENT_WAIT_STATUS_NOT_READY = 1,
  ACL_EVENT_WAIT_STATUS_RESERVED = 0xFFFF
} aclrtEventWaitStatus;

typedef enum aclrtStreamStatus ACL_ENUM_TYPE {
  ACL_STREAM_STATUS_COMPLETE = 0,
  ACL_STREAM_STATUS_NOT_READY = 1,
  ACL_STREAM_STATUS_RESERVED = 0xFFFF
} aclrtStreamStatus;

typedef enum aclrtCallbackBlockType ACL_ENUM_TYPE {
  ACL_CALLBACK_NO_BLOCK = 0,
  ACL_CALLBACK_BLOCK = 1
} aclrtCallbackBlockType;

typedef enum aclrtMemcpyKind ACL_ENUM_TYPE {
  ACL_MEMCPY_HOST_TO_HOST = 0,
  ACL_MEMCPY_HOST_TO_DEVICE = 1,
  ACL_MEMCPY_DEVICE_TO_HOST = 2,
  ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
  ACL_MEMCPY_DEFAULT = 4
} aclrtMemcpyKind;

// The last two may be or-ed in.
typedef enum aclrtMemMallocPolicy ACL_ENUM_TYPE {
  ACL_MEM_MALLOC_HUGE_FIRST = 0,
  ACL_MEM_MALLOC_HUGE_ONLY = 1,
  ACL_MEM_MALLOC_NORMAL_ONLY = 2,
  ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3,
  ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4,
  ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5,
  ACL_MEM_MALLOC_HUGE1G_ONLY = 6,
  ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7,
  ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x0100,
  ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000
} aclrtMemMallocPolicy;

typedef enum aclrtMemAttr ACL_ENUM_TYPE {
  ACL_DDR_MEM = 0,
  ACL_HBM_MEM = 1,
  ACL_DDR_MEM_HUGE = 2,
  ACL_DDR_MEM_NORMAL = 3,
  ACL_HBM_MEM_HUGE = 4,
  ACL_HBM_MEM_NORMAL = 5,
  ACL_DDR_MEM_P2P_HUGE = 6,
  ACL_DDR_MEM_P2P_NORMAL = 7,
  ACL_HBM_MEM_P2P_HUGE = 8,
  ACL_HBM_MEM_P2P_NORMAL = 9
} aclrtMemAttr;

typedef enum aclSysParamOpt ACL_ENUM_TYPE {
  ACL_OPT_DETERMINISTIC = 0,
  ACL_OPT_ENABLE_DEBUG_KERNEL = 1,
  ACL_OPT_STRONG_CONSISTENCY = 2
} aclSysParamOpt;

typedef enum aclrtLastErrLevel ACL_ENUM_TYPE { ACL_RT_THREAD_LEVEL = 0 } aclrtLastErrLevel;

typedef void (*aclrtCallback)(void* userData);

// ---- device. Another number than 0 is ACL_ERROR_RT_INVALID_DEVICEID.

// Makes the device's default context current in the calling thread.
ACL_FUNC_VISIBILITY aclError aclrtSetDevice(int32_t deviceId);

// Waits for the work of the default context, then destroys it with its streams. One call undoes any number of
// aclrtSetDevice. Memory and contexts from aclrtCreateContext stay.
ACL_FUNC_VISIBILITY aclError aclrtResetDevice(int32_t deviceId);

// ACL_ERROR_RT_CONTEXT_NULL if the thread has neither device nor context.
ACL_FUNC_VISIBILITY aclError aclrtGetDevice(int32_t* deviceId);

ACL_FUNC_VISIBILITY aclError aclrtGetDeviceCount(uint32_t* count);

// ACL_HOST.
ACL_FUNC_VISIBILITY aclError aclrtGetRunMode(aclrtRunMode* runMode);

// aclrtSynchronizeStream over all streams.
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeDevice(void);

// Bytes of the machine's memory, whatever the attribute: total, and what programs can still get (MemAvailable).
ACL_FUNC_VISIBILITY aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total);

// 0: there is no other device to reach.
ACL_FUNC_VISIBILITY aclError aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t deviceId, int32_t peerDeviceId);

// `flags` must be 0. A device is no peer of itself: ACL_ERROR_INVALID_PARAM.
ACL_FUNC_VISIBILITY aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags);

// ---- contexts

// The new context becomes current in the calling thread.
ACL_FUNC_VISIBILITY aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId);

// Waits for the context's work, then destroys it with its streams. The default context is aclrtResetDevice's.
ACL_FUNC_VISIBILITY aclError aclrtDestroyContext(aclrtContext context);

ACL_FUNC_VISIBILITY aclError aclrtSetCurrentContext(aclrtContext context);

// ACL_ERROR_RT_CONTEXT_NULL if the thread has neither device nor context.
ACL_FUNC_VISIBILITY aclError aclrtGetCurrentContext(aclrtContext* context);

// ---- options. Any value from 0 up is accepted, kept and returned; none has an effect, since results are always
// deterministic.

// The current context's value if one was set, else the process's, else 0.
ACL_FUNC_VISIBILITY aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value);
ACL_FUNC_VISIBILITY aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value);

// The process's value, or 0.
ACL_FUNC_VISIBILITY aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value);
ACL_FUNC_VISIBILITY aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value);

// ---- streams

// Belongs to the thread's context.
ACL_FUNC_VISIBILITY aclError aclrtCreateStream(aclrtStream* stream);

// Priority and flags are hints without effect.
ACL_FUNC_VISIBILITY aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag);

// Waits for the stream's work.
ACL_FUNC_VISIBILITY aclError aclrtDestroyStream(aclrtStream stream);

// Does not wait: callbacks that have not started are dropped.
ACL_FUNC_VISIBILITY aclError aclrtDestroyStreamForce(aclrtStream stream);

// ACL_ERROR_RT_AICORE_EXCEPTION, once, if an operator on the stream met bad data since the last call; the text is the
// operator's.
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeStream(aclrtStream stream);

// `timeout` in milliseconds; -1 waits for ever, 0 only looks. ACL_ERROR_RT_STREAM_SYNC_TIMEOUT when it runs out.
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout);

ACL_FUNC_VISIBILITY aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status);

// Later work on the stream runs after what the event recorded. An event never recorded holds up nothing.
ACL_FUNC_VISIBILITY aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);

// ---- events. All kinds keep a time.

ACL_FUNC_VISIBILITY aclError aclrtCreateEvent(aclrtEvent* event);
ACL_FUNC_VISIBILITY aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag);
ACL_FUNC_VISIBILITY aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag);
ACL_FUNC_VISIBILITY aclError aclrtDestroyEvent(aclrtEvent event);

// The event completes when the stream's work so far is done. Recording again forgets the time before.
ACL_FUNC_VISIBILITY aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);

// Back to never recorded, once the stream's work so far is done.
ACL_FUNC_VISIBILITY aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);

// An event never recorded is not ready.
ACL_FUNC_VISIBILITY aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status);
ACL_FUNC_VISIBILITY aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status);

// Not ready while a stream that was told to wait for the event still has to.
ACL_FUNC_VISIBILITY aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus* status);

// Returns at once for an event never recorded.
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeEvent(aclrtEvent event);

// `timeout` in milliseconds; -1 waits for ever, 0 only looks. ACL_ERROR_RT_EVENT_SYNC_TIMEOUT when it runs out.
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout);

// Milliseconds from `startEvent` to `endEvent`. ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID if one was never recorded,
// ACL_ERROR_RT_EVENT_NOT_COMPLETE if one is still to come, ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL if the end is earlier.
//
ACL_FUNC_VISIBILITY aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent);

// ---- memory. Sizes, pitches and counts in bytes. Size 0 is ACL_ERROR_INVALID_PARAM; memory that cannot be had is
// ACL_ERROR_RT_MEMORY_ALLOCATION. Blocks are aligned to 64 bytes.

ACL_FUNC_VISIBILITY aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
ACL_FUNC_VISIBILITY aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
ACL_FUNC_VISIBILITY aclError aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
ACL_FUNC_VISIBILITY aclError aclrtFree(void* devPtr);
ACL_FUNC_VISIBILITY aclError aclrtMallocHost(void** hostPtr, size_t size);
ACL_FUNC_VISIBILITY aclError aclrtFreeHost(void* hostPtr);

// Copies `count` bytes; source and destination may overlap. `count` above `destMax`, or reaching beyond the block from
// aclrtMalloc or aclrtMallocHost that a pointer lies in, is ACL_ERROR_INVALID_PARAM, and nothing is written.
ACL_FUNC_VISIBILITY aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                                         aclrtMemcpyKind kind);
ACL_FUNC_VISIBILITY aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                                              aclrtMemcpyKind kind, aclrtStream stream);

// Sets `count` bytes to the low byte of `value`; limits as in aclrtMemcpy.
ACL_FUNC_VISIBILITY aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count);
ACL_FUNC_VISIBILITY aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                                              aclrtStream stream);

// `height` rows of `width` bytes that start `dpitch` and `spitch` bytes apart; neither pitch may be below `width`.
ACL_FUNC_VISIBILITY aclError aclrtMemcpy2d(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                                           size_t height, aclrtMemcpyKind kind);
ACL_FUNC_VISIBILITY aclError aclrtMemcpy2dAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                                                size_t height, aclrtMemcpyKind kind, aclrtStream stream);

// ---- callbacks. They run exactly once, in stream order, inside aclrtProcessReport of the thread that subscribed to
// the stream. `threadId` is what pthread_self returns in it.

// ACL_ERROR_REPEAT_SUBSCRIBE if the stream has a subscriber.
ACL_FUNC_VISIBILITY aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream);

// Later work on the stream waits for a callback that blocks. When the thread that would wait is the subscriber itself,
// or the subscriber has ended, the callback runs there first. ACL_ERROR_STREAM_NOT_SUBSCRIBE without a subscriber.
ACL_FUNC_VISIBILITY aclError aclrtLaunchCallback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType,
                                                 aclrtStream stream);

// Waits up to `timeout` milliseconds (-1: for ever) for a callback and runs all that are there. Returns at once if the
// thread ran one since the last call, because it would have waited for itself. ACL_ERROR_WAIT_CALLBACK_TIMEOUT if none
// came, ACL_ERROR_THREAD_NOT_SUBSCRIBE if the thread subscribes to no stream.
ACL_FUNC_VISIBILITY aclError aclrtProcessReport(int32_t timeout);

// Callbacks launched before stay the thread's. ACL_ERROR_STREAM_NOT_SUBSCRIBE if the stream has no subscriber,
// ACL_ERROR_THREAD_NOT_SUBSCRIBE if it has another.
ACL_FUNC_VISIBILITY aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream);

// ---- errors of the calling thread: the code of its last failed call here, or of a synchronise that reported one; 0 if
// there is none. Get takes it, Peek leaves it.
ACL_FUNC_VISIBILITY aclError aclrtPeekAtLastError(aclrtLastErrLevel level);
ACL_FUNC_VISIBILITY aclError aclrtGetLastError(aclrtLastErrLevel level);

#ifdef __cplusplus
}
#endif

#endif  // ONEHOT_ACL_ACL_RT_H_

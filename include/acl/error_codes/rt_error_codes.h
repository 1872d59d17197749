// Codes of the runtime (acl_rt.h). Those marked "in use" are returned by onehot; the others exist so that programs that
// compare with them compile.
#ifndef ONEHOT_ACL_ERROR_CODES_RT_ERROR_CODES_H_
#define ONEHOT_ACL_ERROR_CODES_RT_ERROR_CODES_H_

// The caller's arguments.
#define ACL_ERROR_RT_PARAM_INVALID 107000
#define ACL_ERROR_RT_INVALID_DEVICEID 107001  // in use: there is one device, 0
#define ACL_ERROR_RT_CONTEXT_NULL 107002      // in use: the thread has set no device and no context
#define ACL_ERROR_RT_STREAM_CONTEXT 107003
#define ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID 107006   // in use: the event was not recorded
#define ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL 107007  // in use: the end was recorded before the start
#define ACL_ERROR_RT_ADDR_UNALIGNED 107008
#define ACL_ERROR_RT_INVALID_MEMORY_TYPE 107016
#define ACL_ERROR_RT_INVALID_HANDLE 107017
#define ACL_ERROR_RT_INVALID_MALLOC_TYPE 107018
#define ACL_ERROR_RT_WAIT_TIMEOUT 107019
#define ACL_ERROR_RT_TASK_TIMEOUT 107020
#define ACL_ERROR_RT_SYSPARAMOPT_NOT_SET 107021

// Resources.
#define ACL_ERROR_RT_FEATURE_NOT_SUPPORT 207000
#define ACL_ERROR_RT_MEMORY_ALLOCATION 207001  // in use: the memory could not be had
#define ACL_ERROR_RT_MEMORY_FREE 207002
#define ACL_ERROR_RT_NO_DEVICE 207004
#define ACL_ERROR_RT_RESOURCE_ALLOC_FAIL 207005
#define ACL_ERROR_RT_NO_EVENT_RESOURCE 207007
#define ACL_ERROR_RT_NO_STREAM_RESOURCE 207008
#define ACL_ERROR_RT_OVER_LIMIT 207012
#define ACL_ERROR_RT_REPEATED_INIT 207015
#define ACL_ERROR_RT_DEVICE_OOM 207018

// The device and the runtime.
#define ACL_ERROR_RT_INTERNAL_ERROR 507000
#define ACL_ERROR_RT_STREAM_NOT_COMPLETE 507004
#define ACL_ERROR_RT_EVENT_NOT_COMPLETE 507006  // in use: elapsed time of an event that is still to come
#define ACL_ERROR_RT_AICORE_TIMEOUT 507014
#define ACL_ERROR_RT_AICORE_EXCEPTION 507015     // in use: an operator met bad data; reported by the next synchronise
#define ACL_ERROR_RT_STREAM_SYNC_TIMEOUT 507046  // in use
#define ACL_ERROR_RT_EVENT_SYNC_TIMEOUT 507047   // in use

#endif  // ONEHOT_ACL_ERROR_CODES_RT_ERROR_CODES_H_

// What operator launches ask of streams. Work runs in the calling thread, so a launch is done when it returns.
#ifndef ONEHOT_ACLNN_STREAM_H_
#define ONEHOT_ACLNN_STREAM_H_

#include <string>

#include "acl/acl_base.h"

namespace onehot::aclnn {

// Null (the default stream of the thread's device) or a live stream.
bool IsLiveStream(aclrtStream stream);

// Waits until earlier work of the stream is done: a pending blocking callback, or an event it was told to wait for
// (contract 7.27). Call before running anything on the stream.
void AwaitTurn(aclrtStream stream);

// Remembers that work on the stream met bad data: its next synchronise returns 507015 once, with this sentence
// (contract 7.7).
void NoteStreamError(aclrtStream stream, std::string message);

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_STREAM_H_

#include <fmt/format.h>

#include "acl/acl_rt.h"
#include "aclnn/context.h"
#include "aclnn/error.h"
#include "aclnn/order.h"

namespace onehot::aclnn {
namespace {

LiveTable<Event>& LiveEvents() {
  static LiveTable<Event>& table = *new LiveTable<Event>(6);
  return table;
}

// The live event behind a handle; null, after RefuseArgument, for anything else.
std::shared_ptr<Event> FindEvent(const char* call, const char* argument, aclrtEvent event) {
  if (event == nullptr) {
    RefuseNull(call, argument);
    return nullptr;
  }
  std::shared_ptr<Event> found = LiveEvents().Find(event);
  if (found == nullptr) RefuseArgument(call, fmt::format("{} {} is not a live event", argument, event));
  return found;
}

aclError Create(const char* call, aclrtEvent* event) {
  if (event == nullptr) return RefuseNull(call, "event");
  *event = LiveEvents().Add(std::make_shared<Event>());
  return ACL_SUCCESS;
}

// Calls body(event, stream) with what is behind the handles.
template <class Body>
aclError WithStream(const char* call, aclrtEvent event, aclrtStream stream, Body&& body) {
  const std::shared_ptr<Event> found_event = FindEvent(call, "event", event);
  if (found_event == nullptr) return ACL_ERROR_INVALID_PARAM;
  const std::shared_ptr<Stream> found_stream = FindStream(call, stream);
  if (found_stream == nullptr) return ACL_ERROR_INVALID_PARAM;
  body(*found_event, found_stream);
  return ACL_SUCCESS;
}

// Writes is(event) to *status.
template <class T, class Is>
aclError Query(const char* call, aclrtEvent event, T* status, Is&& is) {
  if (status == nullptr) return RefuseNull(call, "status");
  const std::shared_ptr<Event> found = FindEvent(call, "event", event);
  if (found == nullptr) return ACL_ERROR_INVALID_PARAM;
  *status = is(*found);
  return ACL_SUCCESS;
}

aclError Synchronize(const char* call, aclrtEvent event, std::int32_t timeout) {
  if (timeout < -1) return RefuseArgument(call, fmt::format("timeout must be at least -1, is {}", timeout));
  const std::shared_ptr<Event> found = FindEvent(call, "event", event);
  if (found == nullptr) return ACL_ERROR_INVALID_PARAM;
  if (AwaitEvent(*found, DeadlineIn(timeout)) == EventState::kPending)
    return FailRuntime(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT,
                       fmt::format("{}: the event did not complete within {} ms", call, timeout));
  return ACL_SUCCESS;
}

// Whether the event has a time.
aclError CheckComplete(const char* call, const char* argument, Event& event) {
  switch (AwaitEvent(event, Clock::now())) {
    case EventState::kNeverRecorded:
      return FailRuntime(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, fmt::format("{}: {} was not recorded", call, argument));
    case EventState::kPending:
      return FailRuntime(ACL_ERROR_RT_EVENT_NOT_COMPLETE, fmt::format("{}: {} is not complete", call, argument));
    case EventState::kComplete:
      break;
  }
  return ACL_SUCCESS;
}

}  // namespace
}  // namespace onehot::aclnn

using namespace onehot::aclnn;

aclError aclrtCreateEvent(aclrtEvent* event) {
  return Call(__func__, [&](const char* call) { return Create(call, event); });
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t) {
  return Call(__func__, [&](const char* call) { return Create(call, event); });
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t) {
  return Call(__func__, [&](const char* call) { return Create(call, event); });
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  return Call(__func__, [&](const char* call) {
    if (event == nullptr) return RefuseNull(call, "event");
    if (LiveEvents().Remove(event) == nullptr)
      return RefuseArgument(call, fmt::format("event {} is not a live event", event));
    return ACL_SUCCESS;
  });
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return Call(__func__, [&](const char* call) { return WithStream(call, event, stream, Record); });
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
  return Call(__func__, [&](const char* call) {
    return WithStream(call, event, stream, [](Event& found, const std::shared_ptr<Stream>& on) {
      AwaitStream(on, std::nullopt);
      Reset(found);
    });
  });
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  return Call(__func__, [&](const char* call) { return WithStream(call, event, stream, WaitFor); });
}

aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status) {
  return Call(__func__, [&](const char* call) {
    return Query(call, event, status, [](Event& found) {
      return AwaitEvent(found, Clock::now()) == EventState::kComplete ? ACL_EVENT_STATUS_COMPLETE
                                                                      : ACL_EVENT_STATUS_NOT_READY;
    });
  });
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  return Call(__func__, [&](const char* call) {
    return Query(call, event, status, [](Event& found) {
      return AwaitEvent(found, Clock::now()) == EventState::kComplete ? ACL_EVENT_RECORDED_STATUS_COMPLETE
                                                                      : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    });
  });
}

aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus* status) {
  return Call(__func__, [&](const char* call) {
    return Query(call, event, status, [](Event& found) {
      return WaitsAreOver(found) ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
    });
  });
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return Call(__func__, [&](const char* call) { return Synchronize(call, event, -1); });
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
  return Call(__func__, [&](const char* call) { return Synchronize(call, event, timeout); });
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent) {
  return Call(__func__, [&](const char* call) {
    if (ms == nullptr) return RefuseNull(call, "ms");
    const std::shared_ptr<Event> start = FindEvent(call, "startEvent", startEvent);
    if (start == nullptr) return ACL_ERROR_INVALID_PARAM;
    const std::shared_ptr<Event> end = FindEvent(call, "endEvent", endEvent);
    if (end == nullptr) return ACL_ERROR_INVALID_PARAM;
    if (const aclError error = CheckComplete(call, "startEvent", *start)) return error;
    if (const aclError error = CheckComplete(call, "endEvent", *end)) return error;
    const std::chrono::duration<float, std::milli> elapsed = CompletedAt(*end) - CompletedAt(*start);
    if (elapsed.count() < 0)
      return FailRuntime(ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL,
                         fmt::format("{}: endEvent completed {} ms before startEvent", call, -elapsed.count()));
    *ms = elapsed.count();
    return ACL_SUCCESS;
  });
}

// In which order the work of streams happens. Everything but callbacks runs in the calling thread at once; a callback
// runs in the thread that subscribed to its stream. So all that work can ever wait for is a set of callbacks.
#ifndef ONEHOT_ACLNN_ORDER_H_
#define ONEHOT_ACLNN_ORDER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "acl/acl_rt.h"

namespace onehot::aclnn {

using Clock = std::chrono::steady_clock;

struct Context;
struct Stream;

// Its members belong to order.cpp, under the one mutex there.
struct Callback {
  enum class State : std::uint8_t { kQueued, kRunning, kDone };

  aclrtCallback run = nullptr;
  void* user_data = nullptr;
  bool blocks = false;       // later work of the stream waits for it
  std::uint64_t thread = 0;  // the subscriber
  bool orphaned = false;     // the subscriber has ended: whoever waits runs it
  std::shared_ptr<Stream> stream;
  State state = State::kQueued;
  std::uint64_t runner = 0;  // the thread that is running it
  Clock::time_point done_at{};
};

// What must be done before something else may be.
using Callbacks = std::vector<std::shared_ptr<Callback>>;

struct Stream {
  explicit Stream(const Context* context) : owner(context) {}

  void* handle = nullptr;
  const Context* const owner;          // compared, never followed
  std::atomic<bool> may_wait = false;  // false: there is nothing to wait for, and no need to lock

  // Under the mutex of order.cpp.
  Callbacks waits_for;               // of other streams, by way of events
  std::optional<std::string> error;  // what the next synchronise reports
};

struct Event {
  void* handle = nullptr;

  // Under the mutex of order.cpp.
  bool recorded = false;
  Clock::time_point recorded_at{};
  Callbacks behind;   // what was unfinished on the stream when it was recorded
  Callbacks held_up;  // what streams that were told to wait for the event still wait for
};

// How long a call may wait: nothing is for ever.
using Deadline = std::optional<Clock::time_point>;

// From a timeout in milliseconds; -1 is for ever.
Deadline DeadlineIn(std::int32_t milliseconds);

// Waits until the stream's work so far is done. Callbacks that are the calling thread's to run are run here first.
// False if time ran out.
bool AwaitStream(const std::shared_ptr<Stream>& stream, Deadline deadline);

// The text of the error noted since the last call.
std::optional<std::string> TakeStreamError(Stream& stream);
void SetStreamError(Stream& stream, std::string message);

// Forgets the stream's subscription and what it waits for; with `drop`, also its callbacks that have not started.
void RetireStream(Stream& stream, bool drop);

void Record(Event& event, const std::shared_ptr<Stream>& stream);
void Reset(Event& event);
void WaitFor(Event& event, const std::shared_ptr<Stream>& stream);

// Whether the event was ever recorded, and if so, whether it is complete by the deadline.
enum class EventState : std::uint8_t { kNeverRecorded, kPending, kComplete };
EventState AwaitEvent(Event& event, Deadline deadline);

// Whether no stream still waits for the event.
bool WaitsAreOver(Event& event);

// When the event completed. Only for one that AwaitEvent called complete.
Clock::time_point CompletedAt(Event& event);

// ---- callbacks. Codes as in acl_rt.h.
aclError Subscribe(std::uint64_t thread, Stream& stream);
aclError Unsubscribe(std::uint64_t thread, Stream& stream);
aclError Launch(aclrtCallback run, void* user_data, bool blocks, const std::shared_ptr<Stream>& stream);
aclError Process(Deadline deadline);

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_ORDER_H_

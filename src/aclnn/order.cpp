#include "aclnn/order.h"

#include <pthread.h>
#include <sys/single_threaded.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "aclnn/error.h"

namespace onehot::aclnn {
namespace {

struct Subscription {
  std::uint64_t thread = 0;
  bool ended = false;      // the thread is gone; another one may have got its id
  bool ran_early = false;  // its thread ran a callback because it waited, not because it asked for one
};

// One mutex for all streams: it is taken only where callbacks or events are.
struct Order {
  std::mutex mutex;
  std::condition_variable changed;  // a callback came, went or lost its thread, or a subscription changed
  std::list<std::shared_ptr<Callback>> unfinished;  // in the order of their launch
  std::unordered_map<const Stream*, Subscription> subscriptions;
};

// Never destroyed: threads may still wait while the process ends.
Order& TheOrder() {
  static Order& order = *new Order;
  return order;
}

using Lock = std::unique_lock<std::mutex>;

std::uint64_t ThisThread() {
  return static_cast<std::uint64_t>(pthread_self());
}

bool IsSubscribed(const Order& order, std::uint64_t thread) {
  return std::any_of(order.subscriptions.begin(), order.subscriptions.end(),
                     [&](const auto& entry) { return entry.second.thread == thread && !entry.second.ended; });
}

// When a subscriber ends, its callbacks become those of whoever waits for them: nobody is to wait for a thread that is
// gone.
struct EndOfThread {
  ~EndOfThread() {
    Order& order = TheOrder();
    const std::uint64_t thread = ThisThread();
    const Lock lock(order.mutex);
    for (auto& [stream, subscription] : order.subscriptions)
      if (subscription.thread == thread) subscription.ended = true;
    for (const auto& callback : order.unfinished)
      if (callback->thread == thread) {
        callback->orphaned = true;
        callback->stream->may_wait = true;
      }
    order.changed.notify_all();
  }
};

void WatchEndOfThread() {
  thread_local const EndOfThread end;
  (void)&end;
}

// A thread id that never was one must not stop a program that has no other thread to wait for.
bool MayRunHere(const Callback& callback) {
  return callback.thread == ThisThread() || callback.orphaned || __libc_single_threaded;
}

bool RunsHere(const Callback& callback) {
  return callback.state == Callback::State::kRunning && callback.runner == ThisThread();
}

// The stream's first callback that has not started, if this thread may start it now. A callback that waits for its own
// stream runs in this thread already, and is no obstacle.
std::shared_ptr<Callback> NextHere(const Order& order, const Stream* stream) {
  for (const auto& callback : order.unfinished) {
    if (callback->stream.get() != stream || RunsHere(*callback)) continue;
    if (callback->state == Callback::State::kQueued && MayRunHere(*callback)) return callback;
    return nullptr;
  }
  return nullptr;
}

void Finish(Order& order, const std::shared_ptr<Callback>& callback) {
  callback->state = Callback::State::kDone;
  callback->done_at = Clock::now();
  order.unfinished.remove(callback);
  order.changed.notify_all();
}

void RunHere(Order& order, Lock& lock, const std::shared_ptr<Callback>& callback) {
  callback->state = Callback::State::kRunning;
  callback->runner = ThisThread();
  lock.unlock();
  try {
    callback->run(callback->user_data);
  } catch (...) {  // the caller of this call is C
    NoteError("aclrtLaunchCallback: the callback threw an exception");
  }
  lock.lock();
  Finish(order, callback);
}

bool IsOver(const std::shared_ptr<Callback>& callback) {
  return callback->state == Callback::State::kDone || RunsHere(*callback);
}

void EraseDone(Callbacks& callbacks) {
  std::erase_if(callbacks, [](const auto& callback) { return callback->state == Callback::State::kDone; });
}

// What later work of the stream has to wait for.
Callbacks Pending(const Order& order, const Stream& stream) {
  Callbacks pending;
  for (const auto& callback : order.unfinished)
    if (callback->stream.get() == &stream && (callback->blocks || callback->orphaned)) pending.push_back(callback);
  for (const auto& callback : stream.waits_for)
    if (callback->state != Callback::State::kDone) pending.push_back(callback);
  return pending;
}

bool Await(Order& order, Lock& lock, Callbacks callbacks, Deadline deadline) {
  bool in_time = true;
  for (;;) {
    std::erase_if(callbacks, IsOver);
    if (callbacks.empty()) return true;
    std::shared_ptr<Callback> next;
    for (std::size_t i = 0; i < callbacks.size() && next == nullptr; ++i)
      next = NextHere(order, callbacks[i]->stream.get());
    if (next != nullptr) {
      RunHere(order, lock, next);
      if (const auto found = order.subscriptions.find(next->stream.get()); found != order.subscriptions.end())
        found->second.ran_early = found->second.thread == ThisThread();
    } else if (!in_time) {
      return false;
    } else if (!deadline) {
      order.changed.wait(lock);
    } else {
      in_time = order.changed.wait_until(lock, *deadline) == std::cv_status::no_timeout;
    }
  }
}

Callbacks Merge(Callbacks into, const Callbacks& from) {
  for (const auto& callback : from)
    if (std::find(into.begin(), into.end(), callback) == into.end()) into.push_back(callback);
  return into;
}

}  // namespace

Deadline DeadlineIn(std::int32_t milliseconds) {
  if (milliseconds < 0) return std::nullopt;
  return Clock::now() + std::chrono::milliseconds(milliseconds);
}

bool AwaitStream(const std::shared_ptr<Stream>& stream, Deadline deadline) {
  if (!stream->may_wait.load(std::memory_order_acquire)) return true;
  Order& order = TheOrder();
  Lock lock(order.mutex);
  const bool done = Await(order, lock, Pending(order, *stream), deadline);
  EraseDone(stream->waits_for);
  stream->may_wait = !Pending(order, *stream).empty();
  return done;
}

std::optional<std::string> TakeStreamError(Stream& stream) {
  const Lock lock(TheOrder().mutex);
  return std::exchange(stream.error, std::nullopt);
}

void SetStreamError(Stream& stream, std::string message) {
  const Lock lock(TheOrder().mutex);
  // The first error stays: what follows it may only be its consequence.
  if (!stream.error) stream.error = std::move(message);
}

void RetireStream(Stream& stream, bool drop) {
  Order& order = TheOrder();
  const Lock lock(order.mutex);
  order.subscriptions.erase(&stream);
  stream.waits_for.clear();
  if (drop)
    order.unfinished.remove_if([&](const auto& callback) {
      if (callback->stream.get() != &stream || callback->state != Callback::State::kQueued) return false;
      callback->state = Callback::State::kDone;
      callback->done_at = Clock::now();
      return true;
    });
  order.changed.notify_all();
}

void Record(Event& event, const std::shared_ptr<Stream>& stream) {
  Order& order = TheOrder();
  Lock lock(order.mutex);
  Await(order, lock, Pending(order, *stream), Clock::now());  // what is this thread's to run
  event.recorded = true;
  event.recorded_at = Clock::now();
  event.behind = Pending(order, *stream);
}

void Reset(Event& event) {
  const Lock lock(TheOrder().mutex);
  event.recorded = false;
  event.behind.clear();
}

void WaitFor(Event& event, const std::shared_ptr<Stream>& stream) {
  Order& order = TheOrder();
  const Lock lock(order.mutex);
  Callbacks behind = event.behind;
  EraseDone(behind);
  EraseDone(event.held_up);
  event.held_up = Merge(Merge(std::move(event.held_up), behind), Pending(order, *stream));
  stream->waits_for = Merge(std::move(stream->waits_for), behind);
  if (!stream->waits_for.empty()) stream->may_wait = true;
}

EventState AwaitEvent(Event& event, Deadline deadline) {
  Order& order = TheOrder();
  Lock lock(order.mutex);
  if (!event.recorded) return EventState::kNeverRecorded;
  return Await(order, lock, event.behind, deadline) ? EventState::kComplete : EventState::kPending;
}

bool WaitsAreOver(Event& event) {
  Order& order = TheOrder();
  Lock lock(order.mutex);
  const bool over = Await(order, lock, event.held_up, Clock::now());
  EraseDone(event.held_up);
  return over;
}

Clock::time_point CompletedAt(Event& event) {
  const Lock lock(TheOrder().mutex);
  for (const auto& callback : event.behind) event.recorded_at = std::max(event.recorded_at, callback->done_at);
  EraseDone(event.behind);
  return event.recorded_at;
}

aclError Subscribe(std::uint64_t thread, Stream& stream) {
  Order& order = TheOrder();
  const Lock lock(order.mutex);
  Subscription& subscription = order.subscriptions[&stream];
  if (subscription.thread != 0 && !subscription.ended) return ACL_ERROR_REPEAT_SUBSCRIBE;
  subscription = {thread, false, false};
  if (thread == ThisThread()) WatchEndOfThread();
  order.changed.notify_all();
  return ACL_SUCCESS;
}

aclError Unsubscribe(std::uint64_t thread, Stream& stream) {
  Order& order = TheOrder();
  const Lock lock(order.mutex);
  const auto found = order.subscriptions.find(&stream);
  if (found == order.subscriptions.end()) return ACL_ERROR_STREAM_NOT_SUBSCRIBE;
  if (found->second.thread != thread) return ACL_ERROR_THREAD_NOT_SUBSCRIBE;
  order.subscriptions.erase(found);
  order.changed.notify_all();
  return ACL_SUCCESS;
}

aclError Launch(aclrtCallback run, void* user_data, bool blocks, const std::shared_ptr<Stream>& stream) {
  Order& order = TheOrder();
  const Lock lock(order.mutex);
  const auto found = order.subscriptions.find(stream.get());
  if (found == order.subscriptions.end()) return ACL_ERROR_STREAM_NOT_SUBSCRIBE;
  auto callback = std::make_shared<Callback>();
  callback->run = run;
  callback->user_data = user_data;
  callback->blocks = blocks;
  callback->thread = found->second.thread;
  callback->orphaned = found->second.ended;
  callback->stream = stream;
  order.unfinished.push_back(callback);
  if (blocks || callback->orphaned) stream->may_wait = true;
  order.changed.notify_all();
  return ACL_SUCCESS;
}

aclError Process(Deadline deadline) {
  WatchEndOfThread();
  Order& order = TheOrder();
  const std::uint64_t thread = ThisThread();
  Lock lock(order.mutex);
  for (bool in_time = true;;) {
    // Only those that are there now: a callback that launches the next one must not keep the call from returning.
    Callbacks mine;
    for (const auto& callback : order.unfinished)
      if (callback->thread == thread && !callback->orphaned && callback->state == Callback::State::kQueued)
        mine.push_back(callback);
    bool ran = false;
    for (const auto& callback : mine)
      if (NextHere(order, callback->stream.get()) == callback) {
        RunHere(order, lock, callback);
        ran = true;
      }
    // A callback that ran before, so that the thread would not wait for itself, is the one this call was made for.
    for (auto& [stream, subscription] : order.subscriptions)
      if (subscription.thread == thread && std::exchange(subscription.ran_early, false)) ran = true;
    if (ran) return ACL_SUCCESS;
    const bool subscribed = IsSubscribed(order, thread);
    const bool hopeless = !deadline && (!subscribed || __libc_single_threaded);
    if (!in_time || hopeless) return subscribed ? ACL_ERROR_WAIT_CALLBACK_TIMEOUT : ACL_ERROR_THREAD_NOT_SUBSCRIBE;
    // Also without a subscription: another thread may be about to subscribe this one.
    if (deadline) {
      in_time = order.changed.wait_until(lock, *deadline) == std::cv_status::no_timeout;
    } else {
      order.changed.wait(lock);
    }
  }
}

}  // namespace onehot::aclnn

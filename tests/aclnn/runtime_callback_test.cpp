// Callbacks, and streams and events that wait for them.
#include <pthread.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/aclnn/runtime.h"

namespace onehot::test {
namespace {

using std::chrono::milliseconds;

uint64_t Self() {
  return static_cast<uint64_t>(pthread_self());
}

// What ran, in which order and in which thread.
struct Trace {
  struct Entry {
    int number;
    uint64_t thread;
  };
  std::mutex mutex;
  std::vector<Entry> entries;

  std::vector<int> Numbers() {
    const std::lock_guard lock(mutex);
    std::vector<int> numbers;
    for (const Entry& entry : entries) numbers.push_back(entry.number);
    return numbers;
  }
};

struct Job {
  Trace* trace;
  int number;
  static void Run(void* data) {
    const Job& job = *static_cast<Job*>(data);
    const std::lock_guard lock(job.trace->mutex);
    job.trace->entries.push_back({job.number, Self()});
  }
};

class CallbackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_DONE(aclrtCreateStream(&stream_));
    ASSERT_DONE(aclrtCreateStream(&other_));
    ASSERT_DONE(aclrtCreateEvent(&event_));
  }
  void TearDown() override {
    EXPECT_DONE(aclrtDestroyEvent(event_));
    EXPECT_DONE(aclrtDestroyStream(other_));
    EXPECT_DONE(aclrtDestroyStream(stream_));
  }

  aclError Launch(int number, aclrtCallbackBlockType type, aclrtStream stream) {
    jobs_.push_back(std::make_unique<Job>(Job{&trace_, number}));
    return aclrtLaunchCallback(Job::Run, jobs_.back().get(), type, stream);
  }

  Trace trace_;
  std::vector<std::unique_ptr<Job>> jobs_;
  aclrtStream stream_ = nullptr;
  aclrtStream other_ = nullptr;
  aclrtEvent event_ = nullptr;
};

// A thread that subscribes by its id and processes reports only when told to.
class Processor {
 public:
  Processor() : thread_([this] { Loop(); }) { id_.get_future().wait(); }
  ~Processor() { End(); }
  void End() {
    end_ = true;
    if (thread_.joinable()) thread_.join();
  }
  uint64_t id() { return static_cast<uint64_t>(thread_.native_handle()); }
  void Open() { open_ = true; }

 private:
  void Loop() {
    id_.set_value();
    while (!end_) {
      if (open_) {
        (void)aclrtProcessReport(5);
      } else {
        std::this_thread::sleep_for(milliseconds(1));
      }
    }
  }
  std::atomic<bool> open_ = false, end_ = false;
  std::promise<void> id_;
  std::thread thread_;
};

TEST_F(CallbackTest, RunOnceInOrderInsideProcessReport) {
  ASSERT_DONE(aclrtSubscribeReport(Self(), stream_));
  for (int i = 0; i < 4; ++i) EXPECT_DONE(Launch(i, i % 2 == 0 ? ACL_CALLBACK_NO_BLOCK : ACL_CALLBACK_BLOCK, stream_));
  EXPECT_TRUE(trace_.Numbers().empty());
  EXPECT_DONE(aclrtProcessReport(0));
  EXPECT_EQ(trace_.Numbers(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_REFUSED(100036, aclrtProcessReport(0), "no callback came within the timeout");
  EXPECT_EQ(trace_.Numbers().size(), 4u);
  EXPECT_DONE(aclrtUnSubscribeReport(Self(), stream_));
}

TEST_F(CallbackTest, Codes) {
  const uint64_t self = Self();
  EXPECT_REFUSED(100034, Launch(0, ACL_CALLBACK_BLOCK, stream_), "the stream has no subscriber");
  EXPECT_REFUSED(100034, aclrtUnSubscribeReport(self, stream_), "the stream has no subscriber");
  EXPECT_REFUSED(100035, aclrtProcessReport(0), "has not subscribed");
  EXPECT_REFUSED(100035, aclrtProcessReport(-1), "has not subscribed");
  EXPECT_REFUSED(100000, aclrtSubscribeReport(0, stream_), "threadId must not be 0");
  EXPECT_DONE(aclrtSubscribeReport(self, stream_));
  EXPECT_REFUSED(100033, aclrtSubscribeReport(self, stream_), "the stream has a subscriber");
  EXPECT_REFUSED(100033, aclrtSubscribeReport(self + 1, stream_), "the stream has a subscriber");
  EXPECT_REFUSED(100035, aclrtUnSubscribeReport(self + 1, stream_), "has not subscribed");
  EXPECT_REFUSED(100000, aclrtLaunchCallback(nullptr, nullptr, ACL_CALLBACK_BLOCK, stream_), "fn must not be null");
  EXPECT_REFUSED(100000, Launch(0, static_cast<aclrtCallbackBlockType>(2), stream_), "blockType must be 0 or 1, is 2");
  EXPECT_REFUSED(100000, aclrtProcessReport(-2), "timeout must be at least -1, is -2");
  EXPECT_REFUSED(100036, aclrtProcessReport(1), "no callback came");
  EXPECT_DONE(aclrtUnSubscribeReport(self, stream_));
  EXPECT_REFUSED(100034, aclrtUnSubscribeReport(self, stream_), "the stream has no subscriber");
  EXPECT_DONE(aclrtSubscribeReport(self, nullptr));  // the default stream can be subscribed to as well
  EXPECT_DONE(aclrtUnSubscribeReport(self, nullptr));
}

// With one thread every kind of later work runs a blocking callback first, and nothing hangs.
TEST_F(CallbackTest, OneThreadNeverHangs) {
  ASSERT_DONE(aclrtSubscribeReport(Self(), stream_));
  char from[4] = {1, 2, 3, 4}, to[4] = {};
  aclrtStreamStatus status{};
  aclrtEventStatus event_status{};
  float ms = 0;
  const std::vector<std::function<aclError()>> later = {
      [&] { return aclrtSynchronizeStream(stream_); },
      [&] { return aclrtSynchronizeStreamWithTimeout(stream_, 0); },
      [&] { return aclrtSynchronizeDevice(); },
      [&] { return aclrtMemcpyAsync(to, 4, from, 4, ACL_MEMCPY_HOST_TO_DEVICE, stream_); },
      [&] { return aclrtMemcpy2dAsync(to, 2, from, 2, 2, 2, ACL_MEMCPY_HOST_TO_DEVICE, stream_); },
      [&] { return aclrtMemsetAsync(to, 4, 0, 4, stream_); },
      [&] { return aclrtRecordEvent(event_, stream_); },
      [&] { return aclrtResetEvent(event_, stream_); },
      [&] { return aclrtStreamQuery(stream_, &status); },
  };
  int number = 0;
  for (const auto& work : later) {
    // The one that does not block comes first in the stream, so it runs first too.
    EXPECT_DONE(Launch(number, ACL_CALLBACK_NO_BLOCK, stream_));
    EXPECT_DONE(Launch(number + 1, ACL_CALLBACK_BLOCK, stream_));
    EXPECT_DONE(Launch(number + 2, ACL_CALLBACK_NO_BLOCK, stream_));
    EXPECT_DONE(work());
    std::vector<int> expected;
    for (int i = 0; i < number + 2; ++i) expected.push_back(i);
    EXPECT_EQ(trace_.Numbers(), expected);
    EXPECT_DONE(aclrtProcessReport(0));
    number += 3;
    EXPECT_EQ(trace_.Numbers().size(), static_cast<size_t>(number));
  }
  EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
  EXPECT_DONE(aclrtRecordEvent(event_, stream_));
  EXPECT_DONE(Launch(100, ACL_CALLBACK_BLOCK, stream_));
  EXPECT_DONE(aclrtRecordEvent(event_, stream_));
  EXPECT_DONE(aclrtQueryEvent(event_, &event_status));
  EXPECT_EQ(event_status, ACL_EVENT_STATUS_COMPLETE);
  EXPECT_DONE(aclrtEventElapsedTime(&ms, event_, event_));
  EXPECT_EQ(trace_.Numbers().back(), 100);
  EXPECT_DONE(Launch(101, ACL_CALLBACK_BLOCK, stream_));
  EXPECT_DONE(aclrtUnSubscribeReport(Self(), stream_));
  EXPECT_DONE(aclrtSynchronizeStream(stream_));  // still this thread's to run
  EXPECT_EQ(trace_.Numbers().back(), 101);
}

// Elsewhere the record does not wait, and the program goes on to wait for its callback.
TEST_F(CallbackTest, ProcessReportAfterTheCallbackRanEarly) {
  alarm(20);
  ASSERT_DONE(aclrtSubscribeReport(Self(), stream_));
  EXPECT_DONE(Launch(0, ACL_CALLBACK_BLOCK, stream_));
  EXPECT_DONE(aclrtRecordEvent(event_, stream_));
  EXPECT_DONE(aclrtProcessReport(-1));
  EXPECT_EQ(trace_.Numbers(), std::vector<int>{0});
  EXPECT_REFUSED(100036, aclrtProcessReport(0), "no callback came");
  alarm(0);
}

TEST_F(CallbackTest, OneThreadNeverHangsOnAThreadThatNeverWas) {
  EXPECT_TRUE(HoldsInChild([&] {
    if (!__libc_single_threaded) return true;  // the thread sanitizer, for one, has a thread of its own
    alarm(20);
    if (aclrtSubscribeReport(12345, stream_) != 0 || Launch(1, ACL_CALLBACK_BLOCK, stream_) != 0) return false;
    return aclrtSynchronizeStream(stream_) == 0 && trace_.Numbers() == std::vector<int>{1} &&
           aclrtSubscribeReport(Self(), other_) == 0 && aclrtProcessReport(-1) == 100036;
  }));
}

TEST_F(CallbackTest, NotBlockingHoldsUpNothing) {
  Processor processor;
  ASSERT_DONE(aclrtSubscribeReport(processor.id(), stream_));
  EXPECT_DONE(Launch(0, ACL_CALLBACK_NO_BLOCK, stream_));
  EXPECT_DONE(aclrtSynchronizeStream(stream_));
  EXPECT_TRUE(trace_.Numbers().empty());
  EXPECT_DONE(aclrtUnSubscribeReport(processor.id(), stream_));
  processor.Open();  // launched before, so still the thread's
  while (trace_.Numbers().empty()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(trace_.entries[0].thread, processor.id());
}

TEST_F(CallbackTest, BlockingHoldsUpItsStreamOnly) {
  Processor processor;
  ASSERT_DONE(aclrtSubscribeReport(processor.id(), stream_));
  EXPECT_DONE(Launch(0, ACL_CALLBACK_BLOCK, stream_));

  aclrtStreamStatus status{};
  EXPECT_DONE(aclrtStreamQuery(stream_, &status));
  EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY);
  EXPECT_REFUSED(507046, aclrtSynchronizeStreamWithTimeout(stream_, 0), "did not end within 0 ms");
  EXPECT_REFUSED(507046, aclrtSynchronizeStreamWithTimeout(stream_, 5), "did not end within 5 ms");
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 507046);
  EXPECT_DONE(aclrtSynchronizeStream(other_));

  EXPECT_DONE(aclrtRecordEvent(event_, stream_));
  aclrtEventStatus event_status{};
  aclrtEventRecordedStatus recorded{};
  aclrtEventWaitStatus waited{};
  float ms = 0;
  EXPECT_DONE(aclrtQueryEvent(event_, &event_status));
  EXPECT_EQ(event_status, ACL_EVENT_STATUS_NOT_READY);
  EXPECT_DONE(aclrtQueryEventStatus(event_, &recorded));
  EXPECT_EQ(recorded, ACL_EVENT_RECORDED_STATUS_NOT_READY);
  EXPECT_REFUSED(507047, aclrtSynchronizeEventWithTimeout(event_, 5), "did not complete within 5 ms");
  EXPECT_REFUSED(507006, aclrtEventElapsedTime(&ms, event_, event_), "startEvent is not complete");
  EXPECT_DONE(aclrtQueryEventWaitStatus(event_, &waited));
  EXPECT_EQ(waited, ACL_EVENT_WAIT_STATUS_COMPLETE);

  // The event carries the wait over to another stream.
  EXPECT_DONE(aclrtStreamWaitEvent(other_, event_));
  EXPECT_DONE(aclrtQueryEventWaitStatus(event_, &waited));
  EXPECT_EQ(waited, ACL_EVENT_WAIT_STATUS_NOT_READY);
  EXPECT_REFUSED(507046, aclrtSynchronizeStreamWithTimeout(other_, 0), "did not end");

  processor.Open();
  char from = 7, to = 0;
  EXPECT_DONE(aclrtMemcpyAsync(&to, 1, &from, 1, ACL_MEMCPY_HOST_TO_DEVICE, other_));
  EXPECT_EQ(to, 7);
  EXPECT_EQ(trace_.Numbers(), std::vector<int>{0});
  EXPECT_EQ(trace_.entries[0].thread, processor.id());
  EXPECT_DONE(aclrtSynchronizeEvent(event_));
  EXPECT_DONE(aclrtQueryEventWaitStatus(event_, &waited));
  EXPECT_EQ(waited, ACL_EVENT_WAIT_STATUS_COMPLETE);
  EXPECT_DONE(aclrtSynchronizeStream(stream_));
  EXPECT_DONE(aclrtUnSubscribeReport(processor.id(), stream_));
}

// An event behind a callback has the time when the callback was done, not when it was recorded.
TEST_F(CallbackTest, TimeOfAnEventBehindACallback) {
  Processor processor;
  aclrtEvent start = nullptr;
  float ms = 0;
  ASSERT_DONE(aclrtCreateEvent(&start));
  ASSERT_DONE(aclrtSubscribeReport(processor.id(), stream_));
  EXPECT_DONE(Launch(0, ACL_CALLBACK_BLOCK, stream_));
  EXPECT_DONE(aclrtRecordEvent(start, other_));
  EXPECT_DONE(aclrtRecordEvent(event_, stream_));
  std::this_thread::sleep_for(milliseconds(20));
  processor.Open();
  EXPECT_DONE(aclrtSynchronizeEvent(event_));
  EXPECT_DONE(aclrtEventElapsedTime(&ms, start, event_));
  EXPECT_GE(ms, 20);
  EXPECT_DONE(aclrtDestroyEvent(start));
}

TEST_F(CallbackTest, ManyThroughTwoThreads) {
  Processor first, second;
  ASSERT_DONE(aclrtSubscribeReport(first.id(), stream_));
  ASSERT_DONE(aclrtSubscribeReport(second.id(), other_));
  first.Open();
  second.Open();
  constexpr int kEach = 300;
  std::thread launcher([&] {
    for (int i = 0; i < kEach; ++i)
      if (aclrtSynchronizeStreamWithTimeout(nullptr, 0) != 0) break;
  });
  for (int i = 0; i < kEach; ++i) {
    EXPECT_DONE(Launch(i, i % 3 == 0 ? ACL_CALLBACK_BLOCK : ACL_CALLBACK_NO_BLOCK, stream_));
    EXPECT_DONE(Launch(kEach + i, i % 5 == 0 ? ACL_CALLBACK_BLOCK : ACL_CALLBACK_NO_BLOCK, other_));
    if (i % 50 == 0) {
      EXPECT_DONE(aclrtSynchronizeStream(stream_));
    }
  }
  EXPECT_DONE(Launch(-1, ACL_CALLBACK_BLOCK, stream_));
  EXPECT_DONE(Launch(-2, ACL_CALLBACK_BLOCK, other_));
  EXPECT_DONE(aclrtSynchronizeDevice());
  launcher.join();
  const std::lock_guard lock(trace_.mutex);
  ASSERT_EQ(trace_.entries.size(), 2u * kEach + 2);
  int next_first = 0, next_second = kEach;
  for (const Trace::Entry& entry : trace_.entries) {
    if (entry.number < 0) continue;
    EXPECT_EQ(entry.number, entry.number < kEach ? next_first++ : next_second++) << "out of stream order";
    EXPECT_EQ(entry.thread, entry.number < kEach ? first.id() : second.id());
  }
}

// What a thread has not run when it ends, whoever waits runs.
TEST_F(CallbackTest, SubscriberThatEnded) {
  auto processor = std::make_unique<Processor>();
  const uint64_t id = processor->id();
  ASSERT_DONE(aclrtSubscribeReport(id, stream_));
  processor->Open();
  EXPECT_DONE(Launch(0, ACL_CALLBACK_BLOCK, stream_));
  EXPECT_DONE(aclrtSynchronizeStream(stream_));
  processor.reset();
  EXPECT_DONE(Launch(1, ACL_CALLBACK_BLOCK, stream_));
  EXPECT_DONE(Launch(2, ACL_CALLBACK_NO_BLOCK, stream_));
  EXPECT_DONE(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(trace_.Numbers(), (std::vector<int>{0, 1, 2}));
  EXPECT_DONE(aclrtUnSubscribeReport(id, stream_));
}

TEST_F(CallbackTest, ForcedDestroyDropsWhatHasNotStarted) {
  Processor processor;
  aclrtStream stream = nullptr;
  ASSERT_DONE(aclrtCreateStream(&stream));
  ASSERT_DONE(aclrtSubscribeReport(processor.id(), stream));
  EXPECT_DONE(Launch(0, ACL_CALLBACK_BLOCK, stream));
  EXPECT_DONE(aclrtRecordEvent(event_, stream));
  EXPECT_DONE(aclrtDestroyStreamForce(stream));
  EXPECT_DONE(aclrtSynchronizeEvent(event_));
  processor.Open();
  std::this_thread::sleep_for(milliseconds(15));
  EXPECT_TRUE(trace_.Numbers().empty());
}

// A callback may use the stream that waits for it; it runs in its turn.
TEST_F(CallbackTest, CallbackThatUsesItsStream) {
  ASSERT_DONE(aclrtSubscribeReport(Self(), stream_));
  static aclError inner;
  inner = -1;
  EXPECT_DONE(aclrtLaunchCallback([](void* stream) { inner = aclrtSynchronizeStream(stream); }, stream_,
                                  ACL_CALLBACK_BLOCK, stream_));
  EXPECT_DONE(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(inner, 0);
}

// One that does not block is no obstacle for what it waits for.
TEST_F(CallbackTest, CallbackThatWaitsForTheNext) {
  alarm(20);
  ASSERT_DONE(aclrtSubscribeReport(Self(), stream_));
  EXPECT_DONE(aclrtLaunchCallback([](void* stream) { EXPECT_DONE(aclrtSynchronizeStream(stream)); }, stream_,
                                  ACL_CALLBACK_NO_BLOCK, stream_));
  EXPECT_DONE(Launch(1, ACL_CALLBACK_BLOCK, stream_));
  EXPECT_DONE(aclrtProcessReport(0));
  EXPECT_EQ(trace_.Numbers(), std::vector<int>{1});
  alarm(0);
}

TEST_F(CallbackTest, CallbackThatLaunchesTheNext) {
  ASSERT_DONE(aclrtSubscribeReport(Self(), stream_));
  static int runs;
  runs = 0;
  static aclrtCallback again;
  again = [](void* stream) {
    if (++runs < 3) (void)aclrtLaunchCallback(again, stream, ACL_CALLBACK_NO_BLOCK, stream);
  };
  EXPECT_DONE(aclrtLaunchCallback(again, stream_, ACL_CALLBACK_NO_BLOCK, stream_));
  EXPECT_DONE(aclrtProcessReport(0));
  EXPECT_EQ(runs, 1);
  EXPECT_DONE(aclrtProcessReport(0));
  EXPECT_EQ(runs, 2);
  EXPECT_DONE(aclrtProcessReport(0));
  EXPECT_REFUSED(100036, aclrtProcessReport(0), "no callback came");
}

TEST_F(CallbackTest, CallbackThatThrows) {
  ASSERT_DONE(aclrtSubscribeReport(Self(), stream_));
  EXPECT_DONE(aclrtLaunchCallback([](void*) { throw 1; }, nullptr, ACL_CALLBACK_BLOCK, stream_));
  (void)TakeText();
  EXPECT_DONE(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(TakeText(), "aclrtLaunchCallback: the callback threw an exception");
}

// A thread may ask before another one subscribes it.
TEST_F(CallbackTest, ProcessBeforeSubscribe) {
  aclError result = -1;
  std::thread late([&] { result = aclrtProcessReport(5000); });
  std::this_thread::sleep_for(milliseconds(5));
  ASSERT_DONE(aclrtSubscribeReport(static_cast<uint64_t>(late.native_handle()), stream_));
  EXPECT_DONE(Launch(0, ACL_CALLBACK_BLOCK, stream_));
  EXPECT_DONE(aclrtSynchronizeStream(stream_));
  late.join();
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace onehot::test

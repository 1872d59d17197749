// Streams and events that no callback holds up; runtime_callback_test.cpp has the others.
#include <chrono>
#include <thread>

#include "tests/aclnn/runtime.h"

namespace onehot::test {
namespace {

TEST(Stream, Life) {
  aclrtStream stream = nullptr, other = nullptr;
  ASSERT_DONE(aclrtCreateStream(&stream));
  ASSERT_DONE(aclrtCreateStreamWithConfig(&other, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC));
  EXPECT_NE(stream, other);
  aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
  for (const aclrtStream one : {stream, other, static_cast<aclrtStream>(nullptr)}) {
    EXPECT_DONE(aclrtSynchronizeStream(one));
    for (const int32_t timeout : {-1, 0, 5}) EXPECT_DONE(aclrtSynchronizeStreamWithTimeout(one, timeout));
    status = ACL_STREAM_STATUS_RESERVED;
    EXPECT_DONE(aclrtStreamQuery(one, &status));
    EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
  }
  EXPECT_DONE(aclrtDestroyStream(stream));
  EXPECT_DONE(aclrtDestroyStreamForce(other));
}

TEST(Stream, MisusedHandles) {
  aclrtStream destroyed = nullptr, next = nullptr;
  aclrtEvent event = nullptr;
  aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
  int local = 0;
  ASSERT_DONE(aclrtCreateEvent(&event));
  ASSERT_DONE(aclrtCreateStream(&destroyed));
  ASSERT_DONE(aclrtDestroyStream(destroyed));
  ASSERT_DONE(aclrtCreateStream(&next));  // takes the memory of the one before, but not its handle
  const auto nothing = [](void*) {};
  for (const aclrtStream bad : {destroyed, static_cast<aclrtStream>(&local), static_cast<aclrtStream>(event)}) {
    const char* const text = "is not a live stream";
    EXPECT_REFUSED(100000, aclrtDestroyStream(bad), text);
    EXPECT_REFUSED(100000, aclrtDestroyStreamForce(bad), text);
    EXPECT_REFUSED(100000, aclrtSynchronizeStream(bad), text);
    EXPECT_REFUSED(100000, aclrtSynchronizeStreamWithTimeout(bad, 0), text);
    EXPECT_REFUSED(100000, aclrtStreamQuery(bad, &status), text);
    EXPECT_REFUSED(100000, aclrtStreamWaitEvent(bad, event), text);
    EXPECT_REFUSED(100000, aclrtRecordEvent(event, bad), text);
    EXPECT_REFUSED(100000, aclrtResetEvent(event, bad), text);
    EXPECT_REFUSED(100000, aclrtSubscribeReport(1, bad), text);
    EXPECT_REFUSED(100000, aclrtUnSubscribeReport(1, bad), text);
    EXPECT_REFUSED(100000, aclrtLaunchCallback(nothing, nullptr, ACL_CALLBACK_BLOCK, bad), text);
  }
  EXPECT_EQ(status, ACL_STREAM_STATUS_RESERVED);
  EXPECT_REFUSED(100000, aclrtCreateStream(nullptr), "stream must not be null");
  EXPECT_REFUSED(100000, aclrtCreateStreamWithConfig(nullptr, 0, 0), "stream must not be null");
  EXPECT_REFUSED(100000, aclrtDestroyStream(nullptr), "stream must not be null");
  EXPECT_REFUSED(100000, aclrtDestroyStreamForce(nullptr), "stream must not be null");
  EXPECT_REFUSED(100000, aclrtStreamQuery(nullptr, nullptr), "status must not be null");
  EXPECT_REFUSED(100000, aclrtSynchronizeStreamWithTimeout(nullptr, -2), "timeout must be at least -1, is -2");
  EXPECT_DONE(aclrtDestroyStream(next));
  EXPECT_DONE(aclrtDestroyEvent(event));
}

TEST(Event, CompletesWhenRecorded) {
  for (const auto create :
       {+[](aclrtEvent* event) { return aclrtCreateEvent(event); },
        +[](aclrtEvent* event) { return aclrtCreateEventWithFlag(event, ACL_EVENT_SYNC); },
        +[](aclrtEvent* event) { return aclrtCreateEventExWithFlag(event, ACL_EVENT_TIME_LINE); }}) {
    aclrtEvent event = nullptr;
    aclrtEventStatus status = ACL_EVENT_STATUS_RESERVED;
    aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_COMPLETE;
    aclrtEventWaitStatus waited = ACL_EVENT_WAIT_STATUS_RESERVED;
    ASSERT_DONE(create(&event));
    EXPECT_DONE(aclrtQueryEvent(event, &status));
    EXPECT_EQ(status, ACL_EVENT_STATUS_NOT_READY);
    EXPECT_DONE(aclrtQueryEventStatus(event, &recorded));
    EXPECT_EQ(recorded, ACL_EVENT_RECORDED_STATUS_NOT_READY);
    // What was never recorded holds up nothing: a program with one thread could not record it any more.
    EXPECT_DONE(aclrtSynchronizeEvent(event));
    EXPECT_DONE(aclrtSynchronizeEventWithTimeout(event, 0));
    EXPECT_DONE(aclrtStreamWaitEvent(nullptr, event));
    EXPECT_DONE(aclrtSynchronizeStream(nullptr));

    EXPECT_DONE(aclrtRecordEvent(event, nullptr));
    EXPECT_DONE(aclrtQueryEvent(event, &status));
    EXPECT_EQ(status, ACL_EVENT_STATUS_COMPLETE);
    EXPECT_DONE(aclrtQueryEventStatus(event, &recorded));
    EXPECT_EQ(recorded, ACL_EVENT_RECORDED_STATUS_COMPLETE);
    EXPECT_DONE(aclrtQueryEventWaitStatus(event, &waited));
    EXPECT_EQ(waited, ACL_EVENT_WAIT_STATUS_COMPLETE);
    EXPECT_DONE(aclrtSynchronizeEvent(event));
    EXPECT_DONE(aclrtSynchronizeEventWithTimeout(event, 0));

    EXPECT_DONE(aclrtResetEvent(event, nullptr));
    EXPECT_DONE(aclrtQueryEvent(event, &status));
    EXPECT_EQ(status, ACL_EVENT_STATUS_NOT_READY);
    EXPECT_DONE(aclrtDestroyEvent(event));
  }
}

TEST(Event, ElapsedTimeIsReal) {
  aclrtEvent start = nullptr, end = nullptr;
  float ms = -1;
  ASSERT_DONE(aclrtCreateEvent(&start));
  ASSERT_DONE(aclrtCreateEvent(&end));
  EXPECT_REFUSED(107006, aclrtEventElapsedTime(&ms, start, end), "startEvent was not recorded");
  const auto before = std::chrono::steady_clock::now();
  EXPECT_DONE(aclrtRecordEvent(start, nullptr));
  EXPECT_REFUSED(107006, aclrtEventElapsedTime(&ms, start, end), "endEvent was not recorded");
  EXPECT_EQ(ms, -1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_DONE(aclrtRecordEvent(end, nullptr));
  const std::chrono::duration<float, std::milli> around = std::chrono::steady_clock::now() - before;
  EXPECT_DONE(aclrtEventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 20);
  EXPECT_LE(ms, around.count());
  float none = -1;
  EXPECT_DONE(aclrtEventElapsedTime(&none, start, start));
  EXPECT_EQ(none, 0);
  EXPECT_REFUSED(107007, aclrtEventElapsedTime(&none, end, start), "before startEvent");
  EXPECT_DONE(aclrtRecordEvent(start, nullptr));  // recording again forgets the time before
  EXPECT_REFUSED(107007, aclrtEventElapsedTime(&none, start, end), "before startEvent");
  EXPECT_DONE(aclrtResetEvent(start, nullptr));
  EXPECT_REFUSED(107006, aclrtEventElapsedTime(&none, start, end), "startEvent was not recorded");
  EXPECT_REFUSED(100000, aclrtEventElapsedTime(nullptr, start, end), "ms must not be null");
  EXPECT_DONE(aclrtDestroyEvent(start));
  EXPECT_DONE(aclrtDestroyEvent(end));
}

TEST(Event, MisusedHandles) {
  aclrtEvent destroyed = nullptr, next = nullptr;
  aclrtStream stream = nullptr;
  aclrtEventStatus status{};
  aclrtEventRecordedStatus recorded{};
  aclrtEventWaitStatus waited{};
  float ms = 0;
  int local = 0;
  ASSERT_DONE(aclrtCreateStream(&stream));
  ASSERT_DONE(aclrtCreateEvent(&destroyed));
  ASSERT_DONE(aclrtDestroyEvent(destroyed));
  ASSERT_DONE(aclrtCreateEvent(&next));
  for (const aclrtEvent bad : {destroyed, static_cast<aclrtEvent>(&local), static_cast<aclrtEvent>(stream),
                               static_cast<aclrtEvent>(nullptr)}) {
    const char* const text = bad == nullptr ? "must not be null" : "is not a live event";
    EXPECT_REFUSED(100000, aclrtDestroyEvent(bad), text);
    EXPECT_REFUSED(100000, aclrtRecordEvent(bad, nullptr), text);
    EXPECT_REFUSED(100000, aclrtResetEvent(bad, nullptr), text);
    EXPECT_REFUSED(100000, aclrtQueryEvent(bad, &status), text);
    EXPECT_REFUSED(100000, aclrtQueryEventStatus(bad, &recorded), text);
    EXPECT_REFUSED(100000, aclrtQueryEventWaitStatus(bad, &waited), text);
    EXPECT_REFUSED(100000, aclrtSynchronizeEvent(bad), text);
    EXPECT_REFUSED(100000, aclrtSynchronizeEventWithTimeout(bad, 0), text);
    EXPECT_REFUSED(100000, aclrtStreamWaitEvent(nullptr, bad), text);
    EXPECT_REFUSED(100000, aclrtEventElapsedTime(&ms, bad, next), text);
    EXPECT_REFUSED(100000, aclrtEventElapsedTime(&ms, next, bad), text);
  }
  EXPECT_REFUSED(100000, aclrtCreateEvent(nullptr), "event must not be null");
  EXPECT_REFUSED(100000, aclrtCreateEventWithFlag(nullptr, 0), "event must not be null");
  EXPECT_REFUSED(100000, aclrtCreateEventExWithFlag(nullptr, 0), "event must not be null");
  EXPECT_REFUSED(100000, aclrtQueryEvent(next, nullptr), "status must not be null");
  EXPECT_REFUSED(100000, aclrtQueryEventStatus(next, nullptr), "status must not be null");
  EXPECT_REFUSED(100000, aclrtQueryEventWaitStatus(next, nullptr), "status must not be null");
  EXPECT_REFUSED(100000, aclrtSynchronizeEventWithTimeout(next, -2), "timeout must be at least -1, is -2");
  EXPECT_DONE(aclrtDestroyEvent(next));
  EXPECT_DONE(aclrtDestroyStream(stream));
}

}  // namespace
}  // namespace onehot::test

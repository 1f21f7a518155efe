#include "convoy/kernels/runtime/event.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

namespace convoy {
namespace {

TEST(Event, IsReachedBeforeItIsRecorded) {
  CpuStream stream;
  const Event event{std::ref(stream)};
  EXPECT_TRUE(event.reached());
  event.wait();
}

TEST(Event, BlocksAnotherStreamUntilReached) {
  CpuStream first({.own_thread = true}), second({.own_thread = true});
  Event event{std::ref(first)};
  std::mutex gate;
  std::unique_lock closed(gate);
  std::atomic<int> order = 0;
  int of_first = -1, of_second = -1;
  first.submit([&] {
    const std::lock_guard passed(gate);
    of_first = order++;
  });
  event.record(std::ref(first));
  event.wait(std::ref(second));
  second.submit([&] { of_second = order++; });
  EXPECT_FALSE(event.reached());
  closed.unlock();
  event.wait();
  EXPECT_TRUE(event.reached());
  second.synchronize();
  EXPECT_EQ(of_first, 0);
  EXPECT_EQ(of_second, 1);
}

TEST(Event, BlocksTheCallerOfAnInlineStream) {
  CpuStream inline_stream, queue({.own_thread = true});
  Event event{std::ref(queue)};
  bool done = false;
  queue.submit([&] { done = true; });
  event.record(std::ref(queue));
  event.wait(std::ref(inline_stream));
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace convoy

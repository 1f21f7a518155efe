// Time marks on the CPU, and CUDA graphs, which the CPU does not support.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "convoy/kernels/runtime/device_context.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy {
namespace {

TEST(CudaGraph, ThrowsUsageErrorOnTheCpu) {
  const DeviceContext cpu = Device::cpu();
  EXPECT_FALSE(CudaGraph::supported(cpu));
  bool ran = false;
  EXPECT_THROW(CudaGraph(cpu, [&] { ran = true; }), UsageError);
  EXPECT_FALSE(ran);
}

TEST(TimedEvent, RecordsTheTimeOfTheCallOnAnInlineStream) {
  const DeviceContext cpu = Device::cpu();
  Event begin = Event::timed(cpu.stream()), end = Event::timed(cpu.stream());
  EXPECT_TRUE(begin.reached());
  EXPECT_THROW(elapsed_ms(begin, end), UsageError) << "a mark that was never recorded";
  begin.record();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  end.record();
  end.wait();
  EXPECT_TRUE(end.reached());
  EXPECT_GE(elapsed_ms(begin, end), 20);
  EXPECT_LT(elapsed_ms(begin, end), 20'000);
  EXPECT_DOUBLE_EQ(elapsed_ms(end, begin), -elapsed_ms(begin, end));
}

TEST(TimedEvent, RecordsTheTimeWhenAQueuedStreamReachesIt) {
  const DeviceContext cpu = Device::cpu();
  CpuStream comm({.own_thread = true});
  Event begin = Event::timed(cpu.stream()), there = Event::timed(cpu.stream()),
        here = Event::timed(cpu.stream());
  begin.record(std::ref(comm));
  std::mutex gate;
  std::unique_lock closed(gate);
  comm.submit([&] { const std::lock_guard passed(gate); });
  there.record(std::ref(comm));
  EXPECT_FALSE(there.reached());
  begin.wait();
  EXPECT_TRUE(begin.reached());
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  here.record();
  EXPECT_TRUE(here.reached());
  closed.unlock();
  EXPECT_GE(elapsed_ms(here, there), 0)
      << "the time of the call to record()";  // elapsed_ms() waits for `there`
  EXPECT_TRUE(there.reached());
  EXPECT_GE(elapsed_ms(begin, there), 2);
}

TEST(TimedEvent, UsesTheLatestRecord) {
  const DeviceContext cpu = Device::cpu();
  CpuStream comm({.own_thread = true});
  Event mark = Event::timed(cpu.stream()), end = Event::timed(cpu.stream());
  std::mutex gate;
  std::unique_lock closed(gate);
  comm.submit([&] { const std::lock_guard passed(gate); });
  mark.record(std::ref(comm));
  mark.record();
  EXPECT_TRUE(mark.reached());
  end.record();
  { Event::timed(cpu.stream()).record(std::ref(comm)); }  // destroyed before the stream reaches it
  closed.unlock();
  comm.synchronize();
  EXPECT_GE(elapsed_ms(mark, end), 0);
}

TEST(Hardware, IsEmptyForTheCpu) {
  EXPECT_EQ(DeviceContext(Device::cpu()).hardware(), "");
  EXPECT_EQ(DeviceContext(Device::cpu()).compute_capability(), 0);
}

}  // namespace
}  // namespace convoy

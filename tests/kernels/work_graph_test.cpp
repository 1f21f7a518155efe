// Time marks and work graphs on the CPU, which records nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"
#include "kernels/runtime/time_mark.h"
#include "kernels/runtime/work_graph.h"

namespace convoy {
namespace {

TEST(WorkGraph, IsForGpus) {
  const Device cpu = Device::cpu();
  EXPECT_FALSE(WorkGraph::supported(cpu));
  bool ran = false;
  EXPECT_THROW(WorkGraph(cpu, [&] { ran = true; }), UsageError);
  EXPECT_FALSE(ran);
}

TEST(TimeMark, OnTheCpuIsTheTimeOfTheCall) {
  const Device cpu = Device::cpu();
  TimeMark begin(cpu), end(cpu);
  EXPECT_TRUE(begin.reached());
  EXPECT_THROW(elapsed_ms(begin, end), UsageError) << "never recorded";
  begin.record();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  end.record();
  end.wait();
  EXPECT_TRUE(end.reached());
  EXPECT_GE(elapsed_ms(begin, end), 20);
  EXPECT_LT(elapsed_ms(begin, end), 20'000);
  EXPECT_DOUBLE_EQ(elapsed_ms(end, begin), -elapsed_ms(begin, end));
}

TEST(Hardware, OfTheCpuHasNoChoicesToHoldFor) {
  EXPECT_EQ(Device::cpu().hardware(), "");
  EXPECT_EQ(Device::cpu().compute_capability(), 0);
}

}  // namespace
}  // namespace convoy

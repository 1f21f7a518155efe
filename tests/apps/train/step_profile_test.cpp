// The profile of steps: which calls it records, what lives at the peak, and the tables and the trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "convoy/apps/train/step_profile.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/runtime/memory/memory.h"
#include "tests/apps/trace_rules.h"

namespace convoy::testing {
namespace {

constexpr std::int64_t kSteps = 100;  // of the training, more than are profiled

class StepProfileTest : public ::testing::Test {
 protected:
  StepProfileTest()
      : net_({{"first", std::make_shared<nn::Linear>(8, 32)},
              {"act", std::make_shared<nn::Activation>(nn::ActivationKind::gelu)},
              {"last", std::make_shared<nn::Linear>(32, 4)}}) {
    net_.to(device_);
    net_.initialize(/*seed=*/1);
  }

  void run_step(StepProfile& profile) {
    profile.begin_step();
    backward(sum(net_(Variable(Tensor::full({16, 8}, 1, DType::f32, device_)), {.training = true})));
    profile.stage_done("optimizer");
  }

  /// Returns a profile of the first steps that are observed.
  std::unique_ptr<StepProfile> profile_of(std::int64_t steps, bool with_memory = false) {
    auto profile = std::make_unique<StepProfile>(device_, steps, with_memory, kSteps);
    for (std::int64_t step = 1; step <= StepProfile::kWarmupSteps + steps + 1; ++step) {
      run_step(*profile);
      EXPECT_EQ(profile->active(),
                step > StepProfile::kWarmupSteps && step <= StepProfile::kWarmupSteps + steps);
      EXPECT_EQ(profile->end_step(), step == StepProfile::kWarmupSteps + steps);
    }
    return profile;
  }

  DeviceContext device_ = DeviceContext::create_cpu({.threads = 1});
  nn::Sequential net_;
};

TEST_F(StepProfileTest, RecordsEachCallForwardAndBackward) {
  const auto profile = profile_of(2);
  const std::vector<ProfiledCall>& calls = profile->calls();
  const auto times = [&](const std::string& module, const std::string& name, bool is_backward) {
    return std::count_if(calls.begin(), calls.end(), [&](const ProfiledCall& call) {
      return call.module == module && call.name == name && call.is_backward == is_backward;
    });
  };
  EXPECT_EQ(profile->steps(), 2);
  for (const bool is_backward : {false, true}) {
    EXPECT_EQ(times("first", "linear", is_backward), 2);
    EXPECT_EQ(times("act", "gelu", is_backward), 2);
    EXPECT_EQ(times("last", "linear", is_backward), 2);
    EXPECT_EQ(times("", "sum", is_backward), 2);
  }
  EXPECT_EQ(times("", "optimizer", false), 2);
  EXPECT_EQ(calls.size(), 2U * 9);
  EXPECT_EQ(calls[0].result, (Shape{16, 32}));
  EXPECT_EQ(calls[0].cost.flops, 2 * 16 * 8 * 32) << "a multiply-add counts as 2";

  // The intervals of the calls add up to the steps.
  double sum = 0;
  for (const ProfiledCall& call : calls) {
    EXPECT_GE(call.ms, 0);
    sum += call.ms;
  }
  EXPECT_NEAR(sum, profile->total_ms(), 1e-6 * profile->total_ms());
}

TEST_F(StepProfileTest, ObservesNothingAfterwards) {
  const auto profile = profile_of(1);
  const std::size_t count = profile->calls().size();
  run_step(*profile);
  EXPECT_EQ(profile->calls().size(), count);
  EXPECT_EQ(OpObserver::active(), nullptr);
  EXPECT_EQ(MemoryListener::active(), nullptr);
  { StepProfile unfinished(device_, 1, true, kSteps); }
  EXPECT_EQ(MemoryListener::active(), nullptr);
}

TEST_F(StepProfileTest, KnowsWhatLivesAtThePeak) {
  constexpr std::size_t kBlock = 1 << 20;
  StepProfile profile(device_, 1, true, kSteps);
  for (int i = 0; i < StepProfile::kWarmupSteps; ++i) {
    profile.begin_step();
    profile.end_step();
  }
  const auto block = [&] { return Tensor::empty({static_cast<std::int64_t>(kBlock)}, DType::u8, device_); };
  Tensor earlier = block();
  const std::size_t begin = device_.memory().stats().in_use;
  profile.begin_step();
  const Tensor first = block();
  profile.stage_done("first");
  {
    const Tensor second = block(), third = block();  // the peak
    earlier = Tensor();
  }
  const Tensor fourth = block();
  profile.stage_done("second");
  ASSERT_TRUE(profile.end_step());

  const std::optional<MemoryPeak> peak = profile.peak();
  ASSERT_TRUE(peak);
  EXPECT_EQ(peak->bytes, begin + 3 * kBlock);
  EXPECT_EQ(peak->before_step, begin);
  EXPECT_EQ(peak->call.name, "second");
  ASSERT_EQ(peak->living.size(), 2U);
  EXPECT_EQ(peak->living[0].first.name, "second");
  EXPECT_EQ(peak->living[0].second, 2 * kBlock);
  EXPECT_EQ(peak->living[1].first.name, "first");
  EXPECT_EQ(peak->living[1].second, kBlock);

  const std::string table = format_memory(*peak, {{"parameters", kBlock}}, /*rows=*/1);
  EXPECT_NE(table.find("memory at the peak: " + format_bytes(begin + 3 * kBlock) + ", in second"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("2.00 MiB  second"), std::string::npos) << table;
  EXPECT_NE(table.find("1.00 MiB  1 more"), std::string::npos) << table;
}

TEST_F(StepProfileTest, CountsTheAllocationsOfEachCall) {
  constexpr std::int64_t kBlock = 3 << 20;
  for (const bool with_memory : {false, true}) {
    StepProfile profile(device_, 2, with_memory, kSteps);
    const auto block = [&] { return Tensor::empty({kBlock}, DType::u8, device_); };
    for (int i = 0; i < StepProfile::kWarmupSteps + 2; ++i) {
      profile.begin_step();
      const Tensor first = block(), second = block();
      std::thread([&] { block(); }).join();  // not of the calls
      profile.stage_done("two blocks");
      profile.stage_done("no block");
      Tensor third = block();
      third = Tensor();  // a release is no allocation
      third = block();
      profile.stage_done("two blocks");
      profile.end_step();
    }
    ASSERT_EQ(profile.calls().size(), 6U);
    for (const ProfiledCall& call : profile.calls()) {
      EXPECT_EQ(call.allocations, call.name == "no block" ? 0 : 2) << call.name;
      EXPECT_EQ(call.allocated_bytes, call.name == "no block" ? 0U : 2U * kBlock) << call.name;
    }
    EXPECT_EQ(profile.peak().has_value(), with_memory);
    const std::string table = format_profile(profile);
    EXPECT_TRUE(std::regex_search(table, std::regex("two blocks .*  4   12.00\n"))) << table;
    EXPECT_TRUE(std::regex_search(table, std::regex("no block .*  0    0.00\n"))) << table;
    EXPECT_TRUE(std::regex_search(table, std::regex("\nstep .*  4   12.00\n"))) << table;
    EXPECT_NE(profile_trace(profile).find("\"allocations\":2,\"allocated_bytes\":6291456"),
              std::string::npos);
  }
}

TEST_F(StepProfileTest, TableHasTheSlowestRowsAndTheRest) {
  const auto profile = profile_of(1);
  const std::string all = format_profile(*profile);
  for (const char* text : {"first", "gelu", "optimizer", "f32 [16, 32]", "step"})
    EXPECT_NE(all.find(text), std::string::npos) << all;
  const std::string some = format_profile(*profile, 2);
  EXPECT_NE(some.find("3 more"), std::string::npos) << some;
}

TEST_F(StepProfileTest, TraceHasAllCalls) {
  const auto profile = profile_of(2, true);
  EXPECT_THAT(problems_of_trace(profile_trace(*profile)), ::testing::IsEmpty());
  const nlohmann::json trace = nlohmann::json::parse(profile_trace(*profile));
  std::size_t calls = 0, counters = 0;
  double end = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "C") ++counters;
    if (event["ph"] != "X") continue;
    ++calls;
    EXPECT_GE(event["ts"].get<double>(), end - 1e-3) << "calls do not overlap";
    end = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_EQ(calls, profile->calls().size());
  EXPECT_EQ(counters, calls);
  EXPECT_NEAR(end, profile->total_ms() * 1e3, 1e-3 * end);
}

}  // namespace
}  // namespace convoy::testing

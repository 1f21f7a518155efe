// Unit tests of the trainer's parts: position, step recorder, precision, loss scale, algorithm cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "convoy/apps/common/plan_cache.h"
#include "convoy/apps/common/precision.h"
#include "convoy/apps/train/options/options.h"
#include "convoy/apps/train/step_reporter.h"
#include "convoy/apps/train/training_state.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Tensor number(double value) { return Tensor::full({1}, value, DType::f64, Device::cpu()); }
MicroBatchResult result(double loss, double correct) { return {number(loss), number(correct)}; }

TEST(TrainingState, AdvancesThroughEpochs) {
  TrainingState state{.step = 3, .epoch = 1, .epoch_step = 1, .samples = 30};
  EXPECT_FALSE(state.advance(10, 3)) << "the second of three steps";
  EXPECT_EQ(state.epoch, 1);
  EXPECT_EQ(state.epoch_step, 2);
  EXPECT_TRUE(state.advance(4, 3)) << "the last step of the epoch";
  EXPECT_EQ(state.epoch, 2);
  EXPECT_EQ(state.epoch_step, 0);
  EXPECT_EQ(state.step, 5);
  EXPECT_EQ(state.samples, 44);
}

TEST(StepRecorder, SumsTheMicroBatchesOfEachStep) {
  StepRecorder log(Device::cpu(), DType::f64, 4);
  log.add({.step = 7, .samples = 20}, {result(0.25, 6), result(0.5, 1)});
  log.add({.step = 8, .samples = 10}, {{.loss = number(3), .correct = {}}});
  EXPECT_FALSE(log.full(1));
  EXPECT_TRUE(log.full(2));
  const std::vector<training::StepResult> losses = log.take().results();
  ASSERT_EQ(losses.size(), 2U);
  EXPECT_EQ(losses[0].step, 7);
  EXPECT_EQ(losses[0].loss, 0.75);
  EXPECT_EQ(losses[0].samples, 20);
  EXPECT_EQ(losses[0].correct, 7);
  EXPECT_EQ(losses[1].step, 8);
  EXPECT_EQ(losses[1].loss, 3);
  EXPECT_EQ(losses[1].correct, std::nullopt) << "labels are mixed";
  EXPECT_TRUE(log.take().results().empty()) << "each loss is taken once";
}

TEST(StepRecorder, TakenLossesAreIndependentOfLaterSteps) {
  StepRecorder log(Device::cpu(), DType::f64, 1);
  log.add({.step = 1}, {result(10, 1)});
  const RecordedSteps taken = log.take();
  log.add({.step = 2}, {result(20, 1)});
  EXPECT_EQ(taken.results().at(0).loss, 10);
  EXPECT_THROW(log.add({.step = 3}, {result(30, 1)}), UsageError) << "the capacity is 1";
}

TEST(StepRecorder, ExcludesPauses) {
  using namespace std::chrono_literals;
  using Clock = std::chrono::steady_clock;
  StepRecorder timer(Device::cpu(), DType::f64, 1);
  const auto begin = Clock::now();
  timer.run();
  std::this_thread::sleep_for(20ms);
  timer.run();  // of the next step: the timer keeps running
  timer.pause();
  const auto paused = Clock::now();
  std::this_thread::sleep_for(100ms);
  const std::chrono::duration<double> pause = Clock::now() - paused;
  timer.run();
  std::this_thread::sleep_for(20ms);
  const double both = timer.take().seconds();
  const std::chrono::duration<double> all = Clock::now() - begin;
  EXPECT_GE(both, 0.040);
  EXPECT_LT(both, (all - pause).count() + 1e-6)
      << "the pause was counted";  // 1e-6 is far above rounding errors
  std::this_thread::sleep_for(20ms);
  EXPECT_GE(timer.take().seconds(), 0.020) << "the timer stopped at take()";
  timer.pause();
  timer.take();
  EXPECT_EQ(timer.take().seconds(), 0);
}

TEST(Precision, HalfPrecisionKeepsFp32Parameters) {
  for (const auto& [name, compute] : {std::pair("fp16", DType::f16), std::pair("bf16", DType::bf16)}) {
    const Precision precision = parse_precision(name);
    EXPECT_TRUE(precision.is_half());
    EXPECT_EQ(precision.compute, compute);
    EXPECT_EQ(precision.parameters, DType::f32);
  }
  EXPECT_TRUE(parse_precision("tf32").tf32);
  EXPECT_FALSE(parse_precision("fp32").tf32);
  EXPECT_EQ(parse_precision("fp64").parameters, DType::f64);
  EXPECT_THAT(message_of<UsageError>([] { parse_precision("fp8"); }),
              AllOf(HasSubstr("found 'fp8'"), HasSubstr("fp64, fp32, tf32, bf16, fp16")));
}

TEST(Precision, CpuRejectsUnsupportedPrecisions) {
  const DeviceContext cpu = Device::cpu();
  for (const char* name : {"fp32", "fp64", "bf16"})
    EXPECT_NO_THROW(check_precision(parse_precision(name), cpu)) << name;
  for (const char* name : {"tf32", "fp16"}) {
    EXPECT_FALSE(supports(cpu, parse_precision(name)));
    EXPECT_THAT(message_of<UsageError>([&] { check_precision(parse_precision(name), cpu); }),
                AllOf(HasSubstr(name), HasSubstr("expected a GPU")));
  }
}

TEST(LossScale, IsDynamicOrANumber) {
  TrainOptions options;
  EXPECT_EQ(loss_scale_settings(options).initial, optim::LossScaleSettings().initial);
  options.loss_scale = "1024";
  EXPECT_EQ(loss_scale_settings(options).initial, 1024);
  EXPECT_EQ(loss_scale_settings(options).options.growth, 1);
  for (const char* text : {"", "static", "0", "0.5", "-3", "nan", "inf", "8x", "1e9"}) {
    options.loss_scale = text;
    EXPECT_THROW(loss_scale_settings(options), UsageError) << text;
  }
}

// DeviceContext::hardware() is empty on the CPU and no algorithms are autotuned, so these tests insert entries
// themselves.
TEST(PlanCache, LoadingKeepsTheOrderOfEntries) {
  const DeviceContext from = DeviceContext::create_cpu();
  const DeviceContext to = DeviceContext::create_cpu();
  EXPECT_EQ(format_algorithm_cache(from), "");
  from.algorithm_cache().insert("conv2d a", "engine 1");
  from.algorithm_cache().insert("conv2d b", "engine 2");
  from.algorithm_cache().find("conv2d a");  // marks it as most recently used
  EXPECT_EQ(load_algorithm_cache(format_algorithm_cache(from), to), std::nullopt);
  EXPECT_EQ(to.algorithm_cache().entries(), from.algorithm_cache().entries());
}

TEST(PlanCache, RejectsDamagedAndForeignFiles) {
  const DeviceContext device = DeviceContext::create_cpu();
  const auto problem = [&](const std::string& text) {
    return load_algorithm_cache(text, device).value_or("none");
  };
  EXPECT_THAT(problem(R"({"format": 1, "hardware": "NVIDIA X", "choices": [["a", "b"]]})"),
              HasSubstr("is for NVIDIA X, found"));
  EXPECT_THAT(problem(R"({"format": 2, "hardware": "", "choices": []})"), HasSubstr("format 2, expected 1"));
  for (const char* text :
       {"", "x", "[]", R"({"format": 1})", R"({"format": 1, "hardware": "", "choices": [["a"]]})",
        R"({"format": 1, "hardware": "", "choices": {"a": 1}})", R"({"format": "1"})"})
    EXPECT_THAT(problem(text), HasSubstr("is damaged")) << text;
  EXPECT_EQ(device.algorithm_cache().size(), 0U) << "a rejected text must not change the cache";
}

TEST(PlanCache, TextForCheckpointsHasNoCompiledCode) {
  const DeviceContext device = DeviceContext::create_cpu();
  device.algorithm_cache().insert("conv2d a", "engine 1", "compiled code");
  const std::string text = format_algorithm_cache(device);
  EXPECT_THAT(text, Not(HasSubstr("code")));
  EXPECT_EQ(load_algorithm_cache(text, device), std::nullopt);
  EXPECT_EQ(device.algorithm_cache().code("conv2d a"), "compiled code");
}

TEST(PlanCache, EmptyCacheWritesNoFile) {
  const TempDirectory directory;
  PlanCache cache((directory.path() / "plans.json").string(), DeviceContext::create_cpu());
  EXPECT_EQ(cache.load(), std::nullopt);
  EXPECT_EQ(cache.store(), std::nullopt);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace convoy::testing

#include "convoy/engine/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "convoy/engine/optim/loss_average.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

// Every rate takes a few operations on doubles near 1.
constexpr double kRounding = 4 * std::numeric_limits<double>::epsilon();

TEST(Schedule, ConstantStaysAtThePeak) {
  const optim::Schedule rate = optim::constant({.peak = 0.3, .steps = 10});
  for (const int step : {0, 5, 9, 100}) EXPECT_EQ(rate(step), 0.3);
}

TEST(Schedule, WarmupRisesToThePeakWhereTheShapeBegins) {
  const optim::ScheduleOptions options{.peak = 1, .steps = 100, .warmup = 4};
  for (const optim::Schedule& rate : {optim::constant(options), optim::linear(options),
                                      optim::cosine(options), optim::step_decay(options)}) {
    for (int step = 0; step < 4; ++step) EXPECT_NEAR(rate(step), (step + 1) / 5.0, kRounding);
    EXPECT_EQ(rate(4), 1);
    EXPECT_LE(rate(5), 1);
  }
}

TEST(Schedule, LinearFallsToFinalAtTheEnd) {
  const optim::Schedule rate = optim::linear({.peak = 1, .steps = 12, .warmup = 2, .final = 0.1});
  EXPECT_EQ(rate(2), 1);
  EXPECT_NEAR(rate(7), 0.55, kRounding);   // t = 5 / 10
  EXPECT_NEAR(rate(11), 0.19, kRounding);  // t = 9 / 10: the last step
  EXPECT_NEAR(rate(12), 0.1, kRounding);
  EXPECT_EQ(rate(1000), rate(12));
}

TEST(Schedule, CosineMatchesPyTorch) {
  const optim::Schedule rate = optim::cosine({.peak = 0.8, .steps = 10, .final = 0.2});
  EXPECT_EQ(rate(0), 0.8);
  EXPECT_NEAR(rate(5), 0.5, kRounding);
  for (int step = 0; step < 10; ++step)
    EXPECT_NEAR(rate(step), 0.2 + 0.3 * (1 + std::cos(std::numbers::pi * step / 10)), kRounding);
  EXPECT_GT(rate(9), 0.2);
  EXPECT_NEAR(rate(10), 0.2, kRounding);
  EXPECT_EQ(rate(11), rate(10));
}

TEST(Schedule, CosineRestartsAtThePeak) {
  // 7 warmup steps, then cycles of 10, 15 and 22.5 steps.
  const optim::Schedule rate = optim::cosine({.peak = 1, .steps = 54, .warmup = 7, .final = 0.5}, 3, 1.5);
  EXPECT_NEAR(rate(3), 0.5, kRounding);
  EXPECT_EQ(rate(7), 1);
  const double first = 47 / 4.75, second = 1.5 * first;  // lengths
  for (const auto& [step, at] : {std::pair{16, 9 / first},
                                 {17, (10 - first) / second},
                                 {31, (24 - first) / second},
                                 {32, (25 - first - second) / (1.5 * second)},
                                 {54, 1.0},
                                 {60, 1.0}})
    EXPECT_NEAR(rate(step), 0.75 + 0.25 * std::cos(std::numbers::pi * at), 4 * kRounding) << step;
  EXPECT_THROW(optim::cosine({.steps = 10}, 0), UsageError);
  EXPECT_THROW(optim::cosine({.steps = 10}, 2, 0.5), UsageError);
  EXPECT_THROW(optim::cosine({.steps = 10}, 2, std::numeric_limits<double>::infinity()), UsageError);
}

TEST(Schedule, StepDropsAtItsMilestones) {
  const optim::Schedule rate = optim::step_decay({.peak = 1, .steps = 100, .warmup = 3});
  EXPECT_EQ(rate(3), 1);
  EXPECT_EQ(rate(49), 1);
  EXPECT_EQ(rate(50), 0.1);
  EXPECT_EQ(rate(74), 0.1);
  EXPECT_NEAR(rate(75), 0.01, kRounding);
  EXPECT_NEAR(rate(99), 0.01, kRounding);
  // 0.55 x 100 is 55.000000000000007 in binary: the milestone is still step 55.
  EXPECT_EQ(optim::step_decay({.peak = 1, .steps = 100}, {0.55}, 0.5)(55), 0.5);
}

TEST(Schedule, RejectsInvalidOptions) {
  EXPECT_THROW(optim::cosine({.peak = -1, .steps = 10}), UsageError);
  EXPECT_THROW(optim::cosine({.peak = std::nan(""), .steps = 10}), UsageError);
  EXPECT_THROW(optim::cosine({.steps = 0}), UsageError);
  EXPECT_THROW(optim::cosine({.steps = 10, .warmup = 10}), UsageError);
  EXPECT_THROW(optim::cosine({.steps = 10, .warmup = -1}), UsageError);
  EXPECT_THROW(optim::cosine({.steps = 10, .final = -1}), UsageError);
  EXPECT_THROW(optim::constant({.steps = 10, .final = 0.1}), UsageError);
  EXPECT_THROW(optim::step_decay({.steps = 10, .final = 0.1}), UsageError);
  EXPECT_THROW(optim::step_decay({.steps = 10}, {1.5}), UsageError);
  EXPECT_THROW(optim::step_decay({.steps = 10}, {0.5}, 0), UsageError);
}

TEST(LossAverage, IsTheWeightedMeanOfTheLosses) {
  optim::LossAverage average(0.9);
  EXPECT_TRUE(std::isnan(average.value()));
  average.add(5);
  EXPECT_NEAR(average.value(), 5, 5 * kRounding);
  average.add(2);
  EXPECT_NEAR(average.value(), (0.9 * 5 + 2) / 1.9, 5 * kRounding);
  for (int i = 0; i < 1000; ++i) average.add(3);
  EXPECT_NEAR(average.value(), 3, 1000 * kRounding);
}

TEST(LossAverage, ContinuesFromItsState) {
  optim::LossAverage one, other;
  for (const double loss : {2.5, 2.25, 1.9}) one.add(loss);
  other.restore(one.state());
  one.add(1.7);
  other.add(1.7);
  EXPECT_EQ(one.value(), other.value());
}

TEST(LossAverage, RejectsADecayOutsideItsRange) {
  EXPECT_THROW(optim::LossAverage(1), UsageError);
  EXPECT_THROW(optim::LossAverage(-0.1), UsageError);
}

}  // namespace
}  // namespace convoy

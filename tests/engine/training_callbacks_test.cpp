// engine/training: monitors, checkpoints and early stopping.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "convoy/engine/training/callback.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/reference.h"
#include "tests/testing/support/temp_directory.h"
#include "tests/testing/support/tiny_training.h"

namespace convoy::training {
namespace {

using convoy::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(LossMonitor, AveragesOverTheSamplesOfAnEpoch) {
  LossMonitor losses;
  losses.on_step({.step = 1, .epoch = 0, .samples = 30, .loss = 2, .correct = 12});
  losses.on_step({.step = 2, .epoch = 0, .samples = 10, .loss = 4, .correct = 8});
  EXPECT_EQ(losses.last(), 4);
  const EpochResult epoch = losses.end_epoch();
  EXPECT_EQ(epoch.epoch, 0);
  EXPECT_EQ(epoch.step, 2);
  EXPECT_EQ(epoch.samples, 40);
  EXPECT_EQ(epoch.loss, 2.5);
  EXPECT_EQ(epoch.accuracy, 0.5);
  losses.on_step({.step = 3, .epoch = 1, .samples = 30, .loss = 1, .correct = {}});
  EXPECT_EQ(losses.end_epoch().accuracy, std::nullopt) << "not counted";
}

TEST(LossMonitor, ContinuesFromItsState) {
  LossMonitor whole, first, second;
  for (int step = 1; step <= 7; ++step) {
    const StepResult result{.step = step, .samples = 3, .loss = 1.0 / step, .correct = step % 3};
    whole.on_step(result);
    if (step == 4) second.restore(first.state());
    (step < 4 ? first : second).on_step(result);
  }
  EXPECT_EQ(second.average(), whole.average());
  EXPECT_EQ(second.last(), whole.last());
  const EpochResult expected = whole.end_epoch(), found = second.end_epoch();
  EXPECT_EQ(found.loss, expected.loss);
  EXPECT_EQ(found.accuracy, expected.accuracy);
  EXPECT_EQ(found.samples, 21);
}

TEST(LossMonitor, RefusesLossesThatAreNotFinite) {
  LossMonitor losses;
  losses.on_step({.step = 1, .samples = 1, .loss = 2.5});
  EXPECT_THAT(message_of<NumericError>([&] { losses.on_step({.step = 2, .samples = 1, .loss = -kNan}); }),
              HasSubstr("the loss of step 2 is nan, after 2.5 at step 1; lower the learning rate"));
  EXPECT_EQ(losses.last(), 2.5);
}

TEST(LossMonitor, PrintsInIntervals) {
  LossMonitor losses(2);
  ::testing::internal::CaptureStdout();
  for (int step = 1; step <= 4; ++step) losses.on_step({.step = step, .samples = 1, .loss = 0.5});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "step 2: loss 0.5000, average 0.5000\nstep 4: loss 0.5000, average 0.5000\n");
}

TEST(TimeMonitor, MeasuresStepsWithoutEvaluations) {
  using namespace std::chrono_literals;
  TimeMonitor times;
  std::this_thread::sleep_for(20ms);
  times.on_step({.step = 1, .samples = 10});
  times.on_epoch({});
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(200ms);
  const std::chrono::duration<double> evaluation = std::chrono::steady_clock::now() - begin;
  times.on_evaluation({});
  std::this_thread::sleep_for(20ms);
  times.on_step({.step = 2, .samples = 30});
  const std::chrono::duration<double> both = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(times.total().steps, 2);
  EXPECT_EQ(times.total().samples, 40);
  EXPECT_EQ(times.epoch().steps, 1);
  EXPECT_GE(times.epoch().seconds, 0.020);
  EXPECT_LE(times.epoch().seconds, (both - evaluation).count() + 1e-6) << "the evaluation was counted";
}

TEST(TimeMonitor, ComputesRates) {
  TimeMonitor times;
  times.restore({.steps = 5, .samples = 450, .seconds = 2.5});
  EXPECT_EQ(times.total().samples_per_second(), 180);
  EXPECT_EQ(times.total().step_ms(), 500);
}

TEST(EarlyStopping, CountsEvaluationsSinceTheBest) {
  EarlyStopping stopping({.patience = 2});
  const auto evaluate = [&](double accuracy) {
    stopping.on_evaluation({.accuracy = accuracy});
    return std::pair(stopping.is_best(), stopping.should_stop());
  };
  EXPECT_EQ(evaluate(0.5), std::pair(true, false));
  EXPECT_EQ(evaluate(0.5), std::pair(false, false)) << "equal is not better";
  EXPECT_EQ(evaluate(0.6), std::pair(true, false));
  EXPECT_EQ(evaluate(kNan), std::pair(false, false));
  EarlyStopping other({.patience = 2});
  other.restore(stopping.state());
  EXPECT_EQ(evaluate(0.55), std::pair(false, true));
  other.on_evaluation({.accuracy = 0.55});
  EXPECT_TRUE(other.should_stop()) << "continues from the state";
  EXPECT_EQ(other.state().best->accuracy, 0.6);
}

TEST(EarlyStopping, ComparesLossesByAMinimumDifference) {
  EarlyStopping stopping({.patience = 1, .metric = Metric::loss, .min_delta = 0.25});
  stopping.on_evaluation({.loss = 2});
  stopping.on_evaluation({.loss = 1.5});
  EXPECT_TRUE(stopping.is_best());
  stopping.on_evaluation({.loss = 1.25});
  EXPECT_TRUE(stopping.should_stop()) << "better by 0.25, not by more";
  EXPECT_THROW(EarlyStopping({.patience = -1}), UsageError);
  EXPECT_THROW(EarlyStopping({.min_delta = -1}), UsageError);
}

TEST(EarlyStopping, NeverCallsALossAboveTheMaximumTheBest) {
  EarlyStopping stopping({.patience = 3, .max_loss = 10});
  const auto is_best = [&](double accuracy, double loss) {
    stopping.on_evaluation({.accuracy = accuracy, .loss = loss});
    return stopping.is_best();
  };
  EXPECT_FALSE(is_best(0.9, 1e14));
  EXPECT_FALSE(is_best(0.9, kNan));
  EXPECT_EQ(stopping.state().best, std::nullopt);
  EXPECT_TRUE(is_best(0.2, 10)) << "lower accuracies are better than none";
  EXPECT_FALSE(is_best(0.9, 11));
  EXPECT_EQ(stopping.state().best->accuracy, 0.2);
}

// tests/reference/schedules.py has the same settings.
TEST(ReduceOnPlateau, HasTheRatesOfPyTorch) {
  const convoy::testing::Reference reference("schedules.safetensors");
  const std::vector<double> losses = reference.at("plateau_losses").to_vector<double>();
  const std::vector<double> expected = reference.at("plateau").to_vector<double>();
  ReduceOnPlateau plateau(0.4, {.factor = 0.3, .patience = 2, .minimum = 0.005, .threshold = 0.01});
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (i == 25) {  // continues from a state
      ReduceOnPlateau other(0.4, {.factor = 0.3, .patience = 2, .minimum = 0.005, .threshold = 0.01});
      other.restore(plateau.state());
      plateau = other;
    }
    plateau.on_evaluation({.loss = losses[i]});
    EXPECT_EQ(plateau.rate(), expected[i]) << "after loss " << i;
  }
}

TEST(ReduceOnPlateau, ContinuesWithAnotherFirstRate) {
  ReduceOnPlateau plateau(0.4, {.factor = 0.5, .patience = 0});
  plateau.add(1);
  plateau.add(1);
  EXPECT_EQ(plateau.rate(), 0.2);
  ReduceOnPlateau lower(0.1, {.factor = 0.5, .patience = 0, .minimum = 0.06});
  lower.restore(plateau.state());
  EXPECT_EQ(lower.rate(), 0.06) << "half of its first rate is below its minimum";
}

TEST(ReduceOnPlateau, RefusesInvalidOptions) {
  EXPECT_THROW(ReduceOnPlateau(0.1, {.factor = 1}), UsageError);
  EXPECT_THROW(ReduceOnPlateau(0.1, {.factor = 0}), UsageError);
  EXPECT_THROW(ReduceOnPlateau(0.1, {.patience = -1}), UsageError);
  EXPECT_THROW(ReduceOnPlateau(0.1, {.threshold = 1}), UsageError);
  EXPECT_THROW(ReduceOnPlateau(0.1, {.minimum = 0.2}), UsageError);
}

TEST(ModelCheckpoint, SavesInIntervalsAndTheBest) {
  std::vector<std::string> saves;
  const auto save = [&](std::int64_t step, bool is_best) {
    saves.push_back(std::to_string(step) + (is_best ? " best" : ""));
  };
  ModelCheckpoint by_steps(save, {.every_steps = 2});
  for (int step = 1; step <= 5; ++step) by_steps.on_step({.step = step});
  by_steps.on_epoch({.step = 5});
  by_steps.on_evaluation({.step = 5, .accuracy = 0.5});
  by_steps.on_evaluation({.step = 7, .accuracy = 0.4});
  EXPECT_THAT(saves, ElementsAre("2", "4", "5 best"));
  EXPECT_EQ(by_steps.saved_step(), 5);
  EXPECT_TRUE(by_steps.is_due({.step = 7, .ends_training = true}));
  EXPECT_FALSE(by_steps.is_due({.step = 5, .ends_training = true})) << "it exists";
  by_steps.withdraw();
  EXPECT_EQ(by_steps.saved_step(), 4);

  saves.clear();
  ModelCheckpoint by_epochs(save, {.keep_best = false, .metric = Metric::loss});
  for (int step = 1; step <= 4; ++step) {
    by_epochs.on_step({.step = step});
    if (step % 2 == 0) by_epochs.on_epoch({.step = step});
    by_epochs.on_evaluation({.step = step, .loss = 1.0 / step});
  }
  EXPECT_THAT(saves, ElementsAre("2", "4"));
  EXPECT_THROW(ModelCheckpoint(save, {.every_steps = -1}), UsageError);
}

TEST(ModelCheckpoint, WritesTheModelAndTheOptimizer) {
  const convoy::testing::TempDirectory directory;
  io::CheckpointDirectory checkpoints(directory.path());
  const convoy::testing::TinyTraining tiny;
  ModelCheckpoint saver(checkpoints, *tiny.net, *tiny.optimizer, {.model_name = "tiny"});
  tiny.step(1);
  saver.on_epoch({.step = 1});
  saver.on_evaluation({.step = 1, .accuracy = 0.5});
  tiny.step(2);
  saver.on_epoch({.step = 2});
  saver.on_evaluation({.step = 2, .accuracy = 0.4});
  EXPECT_EQ(checkpoints.best()->manifest.step, 1);
  EXPECT_EQ(checkpoints.latest()->manifest.step, 2);
  EXPECT_EQ(checkpoints.latest()->manifest.model, "tiny");
  const convoy::testing::TinyTraining other("sgd", DType::f32, /*seed=*/2);
  io::load_checkpoint(*checkpoints.latest(), *other.net, other.optimizer.get());
  EXPECT_EQ(io::parameters_hash(*other.net), io::parameters_hash(*tiny.net));
}

TEST(CallbackList, CallsAllInTheirOrder) {
  struct Recorder final : Callback {
    Recorder(std::string own, std::vector<std::string>& events) : name(std::move(own)), all(events) {}
    void on_step(const StepResult&) override { all.push_back(name + " step"); }
    void on_epoch(const EpochResult&) override { all.push_back(name + " epoch"); }
    void on_evaluation(const EvaluationResult&) override { all.push_back(name + " evaluation"); }
    bool should_stop() const override { return stops; }
    std::string name;
    std::vector<std::string>& all;
    bool stops = false;
  };
  std::vector<std::string> events;
  Recorder a("a", events), b("b", events);
  CallbackList list({&a, &b});
  list.on_step({});
  list.on_epoch({});
  list.on_evaluation({});
  EXPECT_THAT(events, ElementsAre("a step", "b step", "a epoch", "b epoch", "a evaluation", "b evaluation"));
  EXPECT_FALSE(list.should_stop());
  b.stops = true;
  EXPECT_TRUE(list.should_stop());
}

}  // namespace
}  // namespace convoy::training

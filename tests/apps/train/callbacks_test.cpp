// The callbacks of a training by run_program(), in the order of events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/apps/programs/programs.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Trains LeNet on generated images, for two epochs of 2 steps, and returns the exit code.
int train(training::Callback& callback, const std::filesystem::path& out) {
  std::vector<std::string> arguments = {
      "program", "--model",     "lenet", "--dataset", "shapes", "--batch-size", "5000", "--epochs",
      "2",       "--log-every", "1",     "--out",     out,      "--device",     "cpu"};
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return run_program(static_cast<int>(pointers.size()), pointers.data(), {&callback});
}

/// Notes the events of a training.
struct Recorder final : training::Callback {
  std::vector<std::string> events, saves;

  void on_step(const training::StepResult& result) override {
    EXPECT_GT(result.measured->loss, 0);
    EXPECT_EQ(result.measured->loss, result.loss);
    EXPECT_EQ(result.total_samples, 5000 * result.step);
    events.push_back("step " + std::to_string(result.step));
  }
  void on_progress(std::int64_t step, double lr) override {
    EXPECT_GT(lr, 0);
    const std::string last =
        step % 2 == 0 ? "epoch " + std::to_string(step / 2 - 1) : "step " + std::to_string(step);
    EXPECT_EQ(events.back(), last) << "the CPU completes a step at once";
  }
  void on_epoch(const training::EpochResult& result) override {
    EXPECT_EQ(result.samples, 10000);
    EXPECT_GT(result.accuracy, 0.05) << "chance is 10 %";
    events.push_back("epoch " + std::to_string(result.epoch));
  }
  void on_evaluation(const training::EvaluationResult& result) override {
    EXPECT_GT(result.count, 0);
    events.push_back("evaluation " + std::to_string(result.step));
  }
  void on_save(const training::SavedCheckpoint& save) override {
    EXPECT_TRUE(std::filesystem::exists(save.path / "manifest.json"));
    saves.push_back(fmt::format("save {} after {}", save.step, events.back()));
  }
  void on_exception(std::int64_t, const std::exception&) override { events.push_back("exception"); }
};

TEST(TrainingCallbacks, ArriveInTheOrderOfEvents) {
  const testing::TempDirectory directory;
  Recorder recorder;
  EXPECT_EQ(train(recorder, directory.path() / "run"), 0);
  EXPECT_THAT(recorder.events, ElementsAre("step 1", "step 2", "epoch 0", "evaluation 2", "step 3", "step 4",
                                           "epoch 1", "evaluation 4"));
  // The first is written while the training goes on, the last one before it ends.
  EXPECT_THAT(recorder.saves,
              ElementsAre(AnyOf("save 2 after evaluation 2", "save 2 after step 3", "save 2 after epoch 1"),
                          "save 4 after evaluation 4"));
}

/// Fails at the second step.
struct Failing final : training::Callback {
  std::vector<std::string> messages;

  void on_step(const training::StepResult& result) override {
    if (result.step == 2) throw DataError("the callback has failed");
  }
  void on_exception(std::int64_t step, const std::exception& error) override {
    EXPECT_EQ(step, 2);
    messages.emplace_back(error.what());
    throw DataError("another failure, which is ignored");
  }
};

TEST(TrainingCallbacks, ReportAnException) {
  const testing::TempDirectory directory;
  Failing failing;
  EXPECT_EQ(train(failing, directory.path() / "run"), static_cast<int>(ExitCode::data));
  EXPECT_THAT(failing.messages, ElementsAre("the callback has failed"));
}

}  // namespace
}  // namespace convoy

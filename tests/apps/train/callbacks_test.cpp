// The callbacks of a training by run_program(), in the order of events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "convoy/apps/programs/programs.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Trains LeNet on generated images, for two epochs of 2 steps, and returns the exit code.
int train(const TrainerCallbacks& callbacks, const std::filesystem::path& out) {
  std::vector<std::string> arguments = {
      "program", "--model",     "lenet", "--dataset", "shapes", "--batch-size", "5000", "--epochs",
      "2",       "--log-every", "1",     "--out",     out,      "--device",     "cpu"};
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return run_program(static_cast<int>(pointers.size()), pointers.data(), callbacks);
}

TEST(TrainerCallbacks, ArriveInTheOrderOfEvents) {
  const testing::TempDirectory directory;
  std::vector<std::string> events, saves;
  TrainerCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    EXPECT_GT(report.measured->loss, 0);
    events.push_back("step " + std::to_string(report.step));
  };
  callbacks.on_epoch = [&](const training::EpochResult& report) {
    EXPECT_EQ(report.samples, 10000);
    EXPECT_GT(report.accuracy, 0.05) << "chance is 10 %";
    events.push_back("epoch " + std::to_string(report.epoch));
  };
  callbacks.on_evaluation = [&](std::int64_t step, const Evaluation& evaluation, bool) {
    EXPECT_GT(evaluation.count, 0);
    events.push_back("evaluation " + std::to_string(step));
  };
  callbacks.on_save = [&](const SaveReport& save) {
    EXPECT_TRUE(std::filesystem::exists(save.path / "manifest.json"));
    saves.push_back(fmt::format("save {} after {}", save.step, events.back()));
  };
  callbacks.on_exception = [&](std::int64_t, const std::exception&) { events.push_back("exception"); };
  EXPECT_EQ(train(callbacks, directory.path() / "run"), 0);
  EXPECT_THAT(events, ElementsAre("step 1", "step 2", "epoch 0", "evaluation 2", "step 3", "step 4",
                                  "epoch 1", "evaluation 4"));
  // The first is written while the training goes on, the last one before it ends.
  EXPECT_THAT(saves,
              ElementsAre(AnyOf("save 2 after evaluation 2", "save 2 after step 3", "save 2 after epoch 1"),
                          "save 4 after evaluation 4"));
}

TEST(TrainerCallbacks, ReportAnException) {
  const testing::TempDirectory directory;
  std::vector<std::string> messages;
  TrainerCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    if (report.step == 2) throw DataError("the callback has failed");
  };
  callbacks.on_exception = [&](std::int64_t step, const std::exception& error) {
    EXPECT_EQ(step, 2);
    messages.emplace_back(error.what());
    throw DataError("another failure, which is ignored");
  };
  EXPECT_EQ(train(callbacks, directory.path() / "run"), static_cast<int>(ExitCode::data));
  EXPECT_THAT(messages, ElementsAre("the callback has failed"));
}

}  // namespace
}  // namespace convoy

// Runs that are killed and resumed have the same losses and final parameters, bit for bit, as uninterrupted
// runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "convoy/engine/io/checkpoint.h"
#include "convoy/engine/io/safetensors.h"
#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kSteps = 35;

// Involves batch norm's running statistics, momentum, augmentation and a short last batch (320 = 6 * 48 +
// 32).
const Arguments kTraining = {"--model",   "resnet20", "--image-size", "8",   "--augment",    "crop=1,flip",
                             "--epochs",  "5",        "--batch-size", "48",  "--save-every", "3",
                             "--workers", "2",        "--resume",     "auto"};

std::map<std::int64_t, double> losses_by_step(const Workshop& workshop, const std::string& out) {
  std::map<std::int64_t, double> losses;
  for (const Json& step : workshop.events(out, "step")) {
    const bool is_new =
        losses.try_emplace(step["step"].get<std::int64_t>(), step["loss"].get<double>()).second;
    EXPECT_TRUE(is_new) << out << ": step " << step["step"] << " is logged twice";
  }
  return losses;
}

/// Returns the epoch events without their times.
std::vector<Json> epochs_of(const Workshop& workshop, const std::string& out) {
  std::vector<Json> epochs = workshop.events(out, "epoch");
  for (Json& epoch : epochs)
    for (const char* name : {"time", "elapsed"}) epoch.erase(name);
  return epochs;
}

/// Blocks until the run has logged `step` or has ended. Independent of the load of the machine.
void wait_for_step(Process& process, const Workshop& workshop, const std::string& out, int step) {
  const std::string line = "\"step\":" + std::to_string(step) + ",";
  while (process.running() && read_text(workshop.path(out) / "log.jsonl").find(line) == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(Resume, WithBalancedSamplingEndsWithTheSameBytes) {
  const Workshop workshop;
  const Arguments flags = {"--sampling", "balanced", "--batch-size",
                           "48",         "--epochs", "3"};  // of seven steps
  const std::string whole = workshop.trained_hash("whole", flags);
  ASSERT_EQ(workshop.train("run", with(flags, {"--max-steps", "9", "--schedule", "constant"})).exit_code, 0);
  const std::string constant = workshop.trained_hash("constant", with(flags, {"--schedule", "constant"}));
  EXPECT_EQ(workshop.trained_hash("run", with(flags, {"--schedule", "constant", "--resume", "auto"})),
            constant);
  EXPECT_NE(workshop.trained_hash("uniform", {"--batch-size", "48", "--epochs", "3"}), whole);
  EXPECT_THAT(workshop.train("refused", with(flags, {"--overfit-batch"})),
              FailsWith(2, "--sampling balanced: found --overfit-batch, expected one of the two"));
}

/// Each test has five runs.
class Kill : public ::testing::TestWithParam<unsigned> {};

INSTANTIATE_TEST_SUITE_P(Moments, Kill, ::testing::Values(1, 2),
                         [](const auto& seed) { return "Seed" + std::to_string(seed.param); });

TEST_P(Kill, ResumedRunEndsWithTheSameBytes) {
  const Workshop workshop;
  const auto begin = Clock::now();
  ASSERT_EQ(workshop.train("whole", kTraining).exit_code, 0);
  const auto duration = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  const std::string hash = workshop.result("whole")["parameters_hash"];
  const std::map<std::int64_t, double> losses = losses_by_step(workshop, "whole");
  ASSERT_EQ(losses.size(), std::size_t{kSteps});
  const std::vector<Json> epochs = epochs_of(workshop, "whole");
  ASSERT_EQ(epochs.size(), 5U);

  std::mt19937 random(GetParam());
  int interrupted = 0;
  for (int run = 0; run < 5; ++run) {
    const std::string out = "run" + std::to_string(run);
    int step = 0;
    for (int kill = 0; kill < 2; ++kill) {
      Process process(workshop.train_arguments(out, kTraining));
      step = std::uniform_int_distribution<>(step, kSteps - 1)(random);
      if (step > 0) wait_for_step(process, workshop, out, step);
      // Kills at a random point of the next step, or during the start of the program.
      std::this_thread::sleep_for(duration / kSteps * std::uniform_real_distribution<>(0, 1)(random));
      if (process.running()) ++interrupted;
      process.send(SIGKILL);
      process.wait();
      // Every checkpoint in the directory is complete.
      for (const std::filesystem::path& checkpoint : checkpoints_of(workshop.path(out)))
        EXPECT_NO_THROW(io::read_manifest(checkpoint)) << checkpoint;
    }
    ASSERT_THAT(workshop.train(out, kTraining), Succeeds());
    EXPECT_EQ(workshop.result(out)["parameters_hash"], hash) << out;
    EXPECT_EQ(losses_by_step(workshop, out), losses) << out;
    EXPECT_EQ(epochs_of(workshop, out), epochs) << out;
  }
  EXPECT_GE(interrupted, 4) << "too many runs ended before they were killed";
}

TEST(Resume, CompleteRunReportsThatNothingIsLeft) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("run", {"--resume", "auto"}).exit_code, 0)
      << "a new run starts if there is no checkpoint";
  const std::string log = read_text(workshop.path("run") / "log.jsonl");
  EXPECT_THAT(workshop.train("run", {"--resume", "auto"}),
              Prints(AllOf(HasSubstr("this training is complete"), HasSubstr("test accuracy"))));
  EXPECT_EQ(read_text(workshop.path("run") / "log.jsonl"), log);
}

TEST(Resume, RefusesOtherClassesAndNumbersOfImages) {
  namespace fs = std::filesystem;
  const Workshop workshop;
  const fs::path data = workshop.path("colors");
  write_color_directories(data, 16, 4);
  const auto train = [&](const Arguments& more) {
    return workshop.run("convoy-train", with({"--model", "lenet", "--dataset", "folder", "--data",
                                              data.string(), "--batch-size", "6", "--epochs", "1", "--device",
                                              "cpu", "--out", workshop.path("run")},
                                             more));
  };
  ASSERT_THAT(train({}), Succeeds());
  const std::string checkpoint = checkpoints_of(workshop.path("run")).back().string();
  const auto rename = [&](const char* from, const char* to) {
    for (const char* split : {"train", "test"}) fs::rename(data / split / from, data / split / to);
  };
  rename("blue", "zinc");
  const Arguments resume = {"--epochs", "2", "--resume", "auto"};
  EXPECT_THAT(train(resume),
              FailsWith(5, checkpoint + ": trained with 3 classes, found 3, missing: blue, new: zinc; "
                                        "resume with the data of that training, or begin a new one"));
  EXPECT_THAT(train(resume), FailsWith(5, "with --init-from " + checkpoint));
  rename("zinc", "blue");
  const fs::path file = data / "train/red/image100.bmp";
  fs::rename(file, data / "kept");
  EXPECT_THAT(train(resume),
              FailsWith(5, "trained with 12 training, 0 validation and 12 test images, found 11 training, "));
  fs::rename(data / "kept", file);
  fs::rename(data / "test/red/image100.bmp", data / "kept");
  EXPECT_THAT(train(resume), FailsWith(5, "found 12 training, 0 validation and 11 test images; "));
  EXPECT_TRUE(workshop.events("run", "error").empty()) << "the run is as it was";
}

TEST(Resume, LongerTrainingContinuesWithAWarning) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("run", {"--epochs", "1"}).exit_code, 0);
  ASSERT_EQ(workshop.train("run", {"--epochs", "3", "--resume", "auto"}).exit_code, 0);
  EXPECT_EQ(workshop.result("run")["steps"], 30);
  ASSERT_EQ(workshop.events("run", "warning").size(), 1u);
  EXPECT_THAT(workshop.events("run", "warning")[0]["message"].get<std::string>(),
              HasSubstr("--epochs changed from 1 to 3"));
  ASSERT_EQ(workshop.events("run", "step").size(), 30u);
}

TEST(Resume, FromAnotherDirectoryDoesNotModifyIt) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("whole", {"--save-every", "7", "--keep-last", "0"}).exit_code, 0);
  const std::string log = read_text(workshop.path("whole") / "log.jsonl");
  const std::filesystem::path middle = workshop.path("whole") / "checkpoints" / "step_000007";
  ASSERT_EQ(workshop.train("rest", {"--save-every", "7", "--resume", middle.string()}).exit_code, 0);
  EXPECT_EQ(workshop.result("rest")["parameters_hash"], workshop.result("whole")["parameters_hash"]);
  EXPECT_EQ(workshop.events("rest", "step").front()["step"], 8);
  EXPECT_EQ(read_text(workshop.path("whole") / "log.jsonl"), log);
}

/// Returns the whitening filters that the checkpoint of `step` has.
std::vector<float> whitening_filters(const Workshop& workshop, const std::string& out,
                                     const std::string& step) {
  const auto file = workshop.path(out) / "checkpoints" / ("step_00000" + step) / "model.safetensors";
  for (const io::NamedTensor& each : io::read_safetensors(file, Device::cpu()).tensors)
    if (each.name == "whiten.weight") return each.tensor.to_vector<float>();
  ADD_FAILURE() << file << " has no whitening filters";
  return {};
}

// The filters come from the training images, in a new training only.
TEST(Resume, KeepsWhiteningFilters) {
  const Workshop workshop;
  const Arguments flags = {
      "--model", "speedrun-small", "--max-steps", "4", "--save-every", "2", "--keep-last", "0"};
  ASSERT_EQ(workshop.train("whole", flags).exit_code, 0);
  const std::vector<float> filters = whitening_filters(workshop, "whole", "2");
  ASSERT_EQ(filters.size(), 8u * 4);
  EXPECT_EQ(whitening_filters(workshop, "whole", "4"), filters);
  ASSERT_EQ(workshop.train("other", with(flags, {"--seed", "5"})).exit_code, 0);
  EXPECT_EQ(whitening_filters(workshop, "other", "4"), filters);

  const std::filesystem::path middle = workshop.path("whole") / "checkpoints" / "step_000002";
  ASSERT_EQ(workshop.train("rest", with(flags, {"--resume", middle.string()})).exit_code, 0);
  EXPECT_EQ(workshop.result("rest")["parameters_hash"], workshop.result("whole")["parameters_hash"]);
  EXPECT_EQ(whitening_filters(workshop, "rest", "4"), filters);

  // Other images have other filters, but --init-from keeps those of the file.
  write_digits(workshop.path("more"), 64, 10);
  const Arguments more = with(flags, {"--data", workshop.path("more").string()});
  ASSERT_EQ(workshop.train("more", more).exit_code, 0);
  EXPECT_NE(whitening_filters(workshop, "more", "4"), filters);
  const Arguments tuned = with(more, {"--init-from", (middle / "model.safetensors").string()});
  ASSERT_EQ(workshop.train("tuned", tuned).exit_code, 0);
  EXPECT_EQ(whitening_filters(workshop, "tuned", "4"), filters);
}

TEST(Resume, ContinuesWithOtherRatesOfGroups) {
  const Workshop workshop;
  const Arguments common = {"--optimizer", "muon", "--schedule", "linear"};
  const auto train = [&](const char* name, const Arguments& flags) {
    const ProcessResult run = workshop.train(name, with(common, flags));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  };
  train("run", {"--save-every", "10"});
  const std::string middle = workshop.checkpoint("run", 10);
  train("same", {"--resume", middle});
  const std::string out = train("rest", {"--resume", middle, "--sgd-lr", "0.01", "--bias-lr", "0.02",
                                         "--min-lr", "0.001", "--lr-for", "head=2x"});
  for (const char* change : {"--sgd-lr changed from 0.0125 to 0.01", "--bias-lr changed from 0.0125 to 0.02",
                             "--min-lr changed from 0 to 0.001", "--lr-for changed from none to head=2x"})
    EXPECT_THAT(out, HasSubstr(change));
  EXPECT_EQ(workshop.events("same", "result").back()["parameters_hash"],
            workshop.events("run", "result").back()["parameters_hash"]);
  EXPECT_NE(workshop.events("rest", "result").back()["parameters_hash"],
            workshop.events("run", "result").back()["parameters_hash"]);
}

TEST(Resume, RejectsChangedFlags) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("run").exit_code, 0);
  const auto refusal = [&](const Arguments& flags) {
    const ProcessResult result = workshop.train("run", with(flags, {"--resume", "auto"}));
    EXPECT_EQ(result.exit_code, 5) << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal({"--model", "resnet20"}),
              HasSubstr("trained with --model lenet, found --model resnet20"));
  EXPECT_THAT(refusal({"--momentum", "0.5"}), HasSubstr("--momentum 0.9, found --momentum 0.5"));
  // The file that the message names has all flags.
  const std::string config = (workshop.path("run") / "config.toml").string();
  EXPECT_THAT(refusal({"--gamma", "0.5", "--schedule", "step"}),
              HasSubstr("all flags of that run by --config " + config));
  EXPECT_THAT(workshop.run("convoy-train",
                           {"--config", config, "--resume", "auto", "--out", workshop.path("run").string()}),
              Succeeds());
  EXPECT_THAT(refusal({"--optimizer", "adam"}), HasSubstr("--optimizer sgd, found --optimizer adam"));
  EXPECT_THAT(refusal({"--batch-size", "16"}), HasSubstr("--batch-size 32, found --batch-size 16"));
  EXPECT_THAT(refusal({"--precision", "fp64"}), HasSubstr("--precision fp32, found --precision fp64"));
}

TEST(Resume, SkipsADamagedCheckpoint) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("whole", {"--save-every", "4", "--keep-last", "0"}).exit_code, 0);
  const Json whole = workshop.result("whole");
  const std::vector<std::filesystem::path> checkpoints = checkpoints_of(workshop.path("whole"));
  ASSERT_GE(checkpoints.size(), 3u);
  {
    std::fstream newest(checkpoints.back() / "model.safetensors",
                        std::ios::binary | std::ios::in | std::ios::out);
    newest.seekp(1000);
    newest.put('\x55');
  }
  ASSERT_THAT(workshop.train("whole", {"--save-every", "4", "--keep-last", "0", "--resume", "auto"}),
              Prints(HasSubstr("warning: checkpoint skipped")));
  EXPECT_EQ(workshop.result("whole")["parameters_hash"], whole["parameters_hash"]);

  std::filesystem::resize_file(checkpoints[0] / "model.safetensors", 1000);
  EXPECT_THAT(workshop.train("other", {"--resume", checkpoints[0].string()}),
              FailsWith(5, "model.safetensors"));
}

// An accuracy of another checkpoint than the best would be reported as that of the run.
TEST(ChosenCheckpoint, IsNeverReplacedByAnotherOne) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("run", {"--keep-last", "0", "--save-every", "4"}).exit_code, 0);
  const std::string run = workshop.path("run").string();
  const std::filesystem::path directory = workshop.path("run") / "checkpoints";
  const std::string best = read_text(directory / "BEST").substr(0, 11);
  const auto refusals = [&] {
    std::string errors;
    for (const Arguments& program : {Arguments{"convoy-evaluate", "--checkpoint", run},
                                     Arguments{"convoy-predict", "--checkpoint", run, "absent.png"}}) {
      const ProcessResult result = workshop.run(program[0], {program.begin() + 1, program.end()});
      EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
      EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
      errors += result.err;
    }
    return errors;
  };
  const auto expect_refusals = [&](const std::string& problem) {
    const std::string both = refusals();
    EXPECT_THAT(both, AllOf(HasSubstr("convoy-evaluate: error: the best checkpoint cannot be used: "),
                            HasSubstr("convoy-predict: error: the best checkpoint cannot be used: ")));
    EXPECT_THAT(both,
                AllOf(HasSubstr(problem), HasSubstr("--checkpoint " + (directory / "step_0000").string()),
                      HasSubstr(" uses an intact one")));
  };

  std::ofstream(directory / "BEST") << "step_000009\n";
  expect_refusals("step_000009: no such directory, although BEST names it");
  std::ofstream(directory / "BEST") << "";
  expect_refusals("BEST: found no name of a checkpoint");
  std::ofstream(directory / "BEST") << best << "\n";
  std::filesystem::resize_file(directory / best / "model.safetensors", 1000);
  expect_refusals(best + "/model.safetensors: 1000 bytes");

  std::filesystem::path other;
  for (const std::filesystem::path& each : checkpoints_of(workshop.path("run")))
    if (each.filename() != best) other = each;
  EXPECT_EQ(workshop.run("convoy-evaluate", {"--checkpoint", other.string()}).exit_code, 0);
  std::filesystem::remove(directory / "BEST");
  const std::string latest = read_text(directory / "LATEST").substr(0, 11);
  std::filesystem::remove(directory / latest / "manifest.json");
  EXPECT_THAT(refusals(), HasSubstr("error: the latest checkpoint cannot be used: "));
}

TEST(Resume, ContinuesAnIncompleteLog) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("run", {"--epochs", "1"}).exit_code, 0);
  std::ofstream(workshop.path("run") / "log.jsonl", std::ios::app) << "{\"event\":\"step\",\"st";
  ASSERT_EQ(workshop.train("run", {"--epochs", "2", "--resume", "auto"}).exit_code, 0);
  EXPECT_EQ(workshop.events("run", "step").size(),
            20u);  // events() fails the test if a line cannot be parsed
}

}  // namespace
}  // namespace convoy::testing

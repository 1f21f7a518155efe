// The files of a run, and how a run ends after errors and signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "convoy/datasets/formats/readers.h"
#include "convoy/engine/io/checkpoint.h"
#include "convoy/kernels/runtime/library_versions.h"
#include "convoy/version.h"
#include "tests/apps/programs.h"
#include "tests/apps/trace_rules.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

TEST(Run, WritesLogCheckpointsAndSamples) {
  const Workshop workshop;
  const ProcessResult run = workshop.train("run", {"--epochs", "6"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");

  std::vector<Json> log = workshop.log("run");
  const Json start = log.front(), result = log.back();
  EXPECT_EQ(start["event"], "start");
  EXPECT_FALSE(start["hosts"][0].get<std::string>().empty());
  EXPECT_EQ(start["schema"], 2);
  EXPECT_EQ(start["version"], kVersion);
  EXPECT_EQ(start["cpu_level"], cpu_level());
  EXPECT_EQ(start["config"]["model"], "lenet");
  EXPECT_EQ(start["config"]["batch-size"].dump(), "32");
  EXPECT_EQ(start["config"]["lr"].dump(), "0.05");
  EXPECT_EQ(start["config"]["deterministic"].dump(), "false");
  EXPECT_EQ(start["config"]["augment"].dump(), "[]");
  EXPECT_EQ(start["total_steps"], 60);
  EXPECT_EQ(result["event"], "result");
  for (const char* key : {"test_accuracy", "test_loss", "train_seconds", "images_per_second", "steps",
                          "samples", "world_size", "parameters_hash"})
    EXPECT_TRUE(result.contains(key)) << key;
  const std::vector<Json> steps = workshop.events("run", "step");
  ASSERT_EQ(steps.size(), 60u);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i]["step"], i + 1);
    EXPECT_EQ(steps[i]["epoch"], i / 10);
    EXPECT_EQ(steps[i]["samples"], 32 * (i + 1));
    for (const char* key :
         {"loss", "average_loss", "lr", "images_per_second", "step_ms", "data_ms", "memory_bytes"})
      EXPECT_TRUE(steps[i][key].is_number()) << key;
  }
  for (std::size_t i = 1; i < log.size(); ++i) {
    EXPECT_GE(log[i]["elapsed"], log[i - 1]["elapsed"]);
    EXPECT_GE(log[i]["time"], log[i - 1]["time"]) << "as text, times have the order of time";
  }
  EXPECT_GE(result["elapsed"], result["train_seconds"].get<double>() - 1e-3);
  const std::vector<Json> evaluations = workshop.events("run", "eval");
  for (std::size_t i = 0; i < evaluations.size(); ++i) EXPECT_EQ(evaluations[i]["epoch"], i);
  const Json evaluation = evaluations.back();
  EXPECT_EQ(evaluation["step"], 60);
  EXPECT_EQ(evaluation["count"], 100);
  EXPECT_EQ(evaluation["accuracy"], result["test_accuracy"]);
  EXPECT_GE(result["test_accuracy"], 0.95) << "the digits are easy";

  const std::filesystem::path newest = checkpoints_of(workshop.path("run")).back();
  EXPECT_EQ(newest.filename(), "step_000060");
  EXPECT_EQ(io::read_manifest(newest).parameters_hash, result["parameters_hash"].get<std::string>());
  EXPECT_EQ(read_text(workshop.path("run") / "checkpoints" / "LATEST"), "step_000060\n");
  const Tensor samples = data::read_image(workshop.path("run") / "samples.png");
  EXPECT_EQ(samples.shape(), (Shape{8 * 70, 8 * 58, 3}))
      << "eight images of 28 pixels, twice as large, captions of 12 and gaps of 2";
  EXPECT_THAT(run.out, HasSubstr("convoy-predict --checkpoint " + workshop.path("run").string()));
  EXPECT_THAT(run.out, HasSubstr("convoy-report " + workshop.path("run").string()));
  EXPECT_THAT(run.out, ::testing::Not(HasSubstr("\r"))) << "a progress bar was drawn in a pipe";
}

TEST(Run, WithoutLogEveryMeasuresTheFirstStepsAndThenByTime) {
  const Workshop workshop;
  for (const char* ranks : {"1", "2"}) {
    const Arguments flags = {"--log-every", "0", "--epochs", "0", "--max-steps", "200", "--devices", ranks};
    ASSERT_EQ(workshop.train(ranks, flags).exit_code, 0);
    const std::vector<double> steps = workshop.numbers(ranks, "step", "step");
    ASSERT_GE(steps.size(), 50U) << "as few steps as these have 50 points, however fast they are";
    EXPECT_EQ(std::vector(steps.begin(), steps.begin() + 4), (std::vector<double>{1, 2, 5, 10}));
    for (std::size_t i = 4; i < steps.size(); ++i) EXPECT_LE(steps[i] - steps[i - 1], 4);
    EXPECT_EQ(steps.back(), 200);
  }
}

TEST(Run, PrintsTheProgressOfALongEvaluationIntoAPipe) {
  const Workshop workshop;
  Process run({program("convoy-train"), "--dataset", "shapes", "--device", "cpu", "--threads", "1",
               "--batch-size", "1", "--micro-batch-size", "0", "--epochs", "0", "--max-steps", "1", "--out",
               workshop.path("run")});
  const auto log = workshop.path("run") / "log.jsonl";
  while (run.running() &&
         (!std::filesystem::exists(log) || read_text(log).find("\"step\",") == std::string::npos))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  run.send(SIGSTOP);  // in the evaluation, which seems to last as long
  std::this_thread::sleep_for(std::chrono::milliseconds(3100));
  run.send(SIGCONT);
  EXPECT_THAT(run.wait().out,
              ::testing::ContainsRegex("step 1/1 .*\nevaluating [0-9]+/[0-9]+\n(.*\n)*evaluation at step 1"));
}

// At a rate of 0, all samples of an epoch are seen with the same parameters.
TEST(Run, TrainingAccuracyIsThatOfAllSamplesOfTheEpoch) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("start", {"--epochs", "2"}).exit_code, 0);
  const std::string start = workshop.path("start").string();
  const Json expected = workshop.evaluated(start, {"--data", workshop.path("digits"), "--split", "train"});
  EXPECT_GT(expected["accuracy"], 0.2) << "chance is 0.1, which one class for all images reaches";
  EXPECT_LT(expected["accuracy"], 0.98);
  const std::vector<Arguments> variants = {
      {"--log-every", "7"}, {"--micro-batch-size", "9"}, {"--devices", "3", "--batch-size", "53"}};
  for (const Arguments& variant : variants) {
    const ProcessResult run =
        workshop.train(variant[0], with({"--lr", "0", "--batch-size", "48", "--init-from", start}, variant));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const std::vector<Json> epochs = workshop.events(variant[0], "epoch");
    ASSERT_EQ(epochs.size(), 2U) << variant[0];
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(epochs[i]["epoch"], i);
      EXPECT_EQ(epochs[i]["step"], 7 * (i + 1));
      EXPECT_EQ(epochs[i]["samples"], 320);
      EXPECT_EQ(epochs[i]["accuracy"], expected["accuracy"]) << variant[0];
      EXPECT_NEAR(epochs[i]["loss"].get<double>(), expected["loss"].get<double>(), 1e-5);  // f32
    }
    const std::string text =
        fmt::format("; training accuracy {:.2f}%\n", 100 * expected["accuracy"].get<double>());
    EXPECT_THAT(run.out, HasSubstr(text));
  }
}

TEST(Run, TrainingAccuracyIsPrintedWithoutAnEvaluation) {
  const Workshop workshop;
  const ProcessResult run = workshop.train("run", {"--eval-every", "0"});
  EXPECT_THAT(run.out, HasSubstr("\nepoch 1: training accuracy "));
  EXPECT_THAT(run.out, ::testing::Not(HasSubstr("\nepoch 2: "))) << "the last evaluation has it";
  EXPECT_EQ(workshop.events("run", "epoch").size(), 2U);
}

TEST(Run, ConfigurationInTheLogIsThatOfConfigToml) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("run", {"--max-steps", "1", "--augment", "crop=2,flip"}).exit_code, 0);
  const Json config = workshop.log("run").front()["config"];
  EXPECT_EQ(config["augment"], (Json{"crop=2", "flip"}));
  std::istringstream lines(read_text(workshop.path("run") / "config.toml"));
  std::size_t keys = 0;
  for (std::string line; std::getline(lines, line); ++keys) {
    const std::string key = line.substr(0, line.find(" = ")), value = line.substr(line.find(" = ") + 3);
    ASSERT_TRUE(config.contains(key)) << key;
    if (config[key].is_number()) {
      EXPECT_EQ(config[key].get<double>(), std::stod(value)) << key;
    } else if (config[key].is_string()) {
      EXPECT_EQ("'" + config[key].get<std::string>() + "'", value) << key;
    }
  }
  EXPECT_EQ(keys, config.size());
}

TEST(Run, WritesThePredictionsOfTheBestEvaluation) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("run", {"--epochs", "2", "--lr", "0.001"}).exit_code, 0);
  const std::filesystem::path out = workshop.path("run");
  const Json file = Json::parse(read_text(out / "evaluation.json"));
  const Json expected =
      workshop.evaluated(out, {"--data", workshop.path("digits"), "--logits", workshop.path("logits.npy")});
  for (const char* key : {"step", "count", "accuracy", "classes", "images", "correct", "confusion"})
    EXPECT_EQ(file[key], expected[key]) << key;
  const Json& mistakes = file["mistakes"];
  ASSERT_FALSE(mistakes.empty()) << "a rate this low must leave mistakes";
  const std::string logits = read_text(workshop.path("logits.npy"));
  const auto* const rows = reinterpret_cast<const float*>(logits.data() + logits.size() - 100 * 10 * 4);
  for (std::size_t i = 0; i < mistakes.size(); ++i) {
    const Json& mistake = mistakes[i];
    const float* const row = rows + mistake["image"].get<int>() * 10;
    const auto prediction = std::max_element(row, row + 10) - row;
    EXPECT_EQ(mistake["prediction"], prediction);
    EXPECT_NE(mistake["label"], prediction);
    double sum = 0;
    for (int c = 0; c < 10; ++c) sum += std::exp(row[c] - row[prediction]);
    EXPECT_NEAR(mistake["probability"].get<double>(), 1 / sum, 1e-5);
    if (i > 0) {
      EXPECT_LE(mistake["probability"], mistakes[i - 1]["probability"]);
    }
  }
  const std::size_t wrong = 100 - std::llround(100 * file["accuracy"].get<double>());
  EXPECT_EQ(mistakes.size(), std::min<std::size_t>(wrong, 24));
  const Tensor picture = data::read_image(out / "mistakes.png");
  EXPECT_EQ(picture.size(1), 6 * 58) << "six images of 28 pixels, twice as large, and gaps of 2";
}

TEST(Run, MemoryIsConstantOverSteps) {
  const Workshop workshop;
  ASSERT_THAT(workshop.train("run", {"--model", "resnet20", "--image-size", "8", "--epochs", "20"}),
              Succeeds());
  const std::vector<Json> steps = workshop.events("run", "step");
  ASSERT_EQ(steps.size(), 200u);
  // Compares the allocator's peaks. Prefetching may still add a few batches of 32x8x8 floats after the first
  // steps.
  const double settled = steps[20]["memory_bytes"], last = steps.back()["memory_bytes"];
  EXPECT_GT(settled, 0);
  EXPECT_LE(last, settled + 4 * 32 * 8 * 8 * 4);
}

TEST(Run, RejectsADirectoryThatContainsARun) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("run").exit_code, 0);
  const std::string before = read_text(workshop.path("run") / "log.jsonl");
  EXPECT_THAT(workshop.train("run"), FailsWith(2, "contains a run already (step_000020); add --resume auto"));
  EXPECT_EQ(read_text(workshop.path("run") / "log.jsonl"), before);
}

TEST(Run, RejectsADirectoryInUseByAnotherProcess) {
  const Workshop workshop;
  Process first(workshop.train_arguments("run", {"--epochs", "100000"}));
  while (!std::filesystem::exists(workshop.path("run") / "samples.png") && first.running())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_THAT(workshop.train("run", {"--epochs", "100000", "--resume", "auto"}),
              FailsWith(2, "another process is using this directory"));
  EXPECT_TRUE(first.running());
}

TEST(Run, NanLossStopsTheRunAndKeepsCheckpoints) {
  const Workshop workshop;
  // The first step makes parameters of 1e29, which are saved because no forward pass has used them yet.
  const ProcessResult saved = workshop.train("saved", {"--lr", "1e30", "--warmup", "0", "--save-every", "1"});
  EXPECT_EQ(saved.exit_code, 6) << saved.out << saved.err;
  EXPECT_THAT(saved.err, HasSubstr("the loss of step 2 is"));
  EXPECT_THAT(saved.err, HasSubstr("lower --lr (now 1e+30)"));
  EXPECT_THAT(saved.err, HasSubstr("the checkpoint of step 1 is intact"));
  const auto newest = io::CheckpointDirectory(workshop.path("saved") / "checkpoints").latest();
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->manifest.step, 1);
  EXPECT_TRUE(workshop.events("saved", "result").empty());
  const std::vector<Json> errors = workshop.events("saved", "error");
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_THAT(errors[0]["message"].get<std::string>(), HasSubstr("the loss of step 2 is"));

  // The losses of several steps are read together; the message still names the first one that is not finite.
  const ProcessResult unsaved =
      workshop.train("unsaved", {"--lr", "1e30", "--warmup", "0", "--log-every", "5"});
  EXPECT_EQ(unsaved.exit_code, 6) << unsaved.out << unsaved.err;
  EXPECT_THAT(unsaved.err, HasSubstr("the loss of step 2 is"));
  EXPECT_THAT(unsaved.err, HasSubstr("there is no checkpoint yet"));
}

TEST(Run, FullDiskStopsTheRunAndKeepsCheckpoints) {
  const Workshop workshop;
  // The limit also holds for the 147 kB of shared memory that the control plane needs. LeNet's parameters need
  // 178 kB: a smaller limit fails the checkpoint, a slightly larger one the log.
  const ProcessResult early =
      run_program(workshop.train_arguments("early"),
                  {.environment = {}, .directory = {}, .input = "", .max_file_bytes = 160000});
  EXPECT_EQ(early.exit_code, 8) << early.err;
  EXPECT_THAT(early.err, HasSubstr("model.safetensors"));
  EXPECT_TRUE(checkpoints_of(workshop.path("early")).empty());

  const Arguments flags = {"--epochs", "100", "--eval-every", "0", "--save-every", "300"};
  const ProcessResult late =
      run_program(workshop.train_arguments("late", flags),
                  {.environment = {}, .directory = {}, .input = "", .max_file_bytes = 200000});
  EXPECT_EQ(late.exit_code, 8) << late.err;
  EXPECT_THAT(late.err, HasSubstr("log.jsonl: File too large; the last checkpoint is intact"));
  EXPECT_THAT(workshop.train("late", with(flags, {"--resume", "auto"})), Succeeds());
  EXPECT_EQ(workshop.events("late", "step").size(), 1000u);
}

const Arguments kFlags = {"--epochs", "60", "--eval-every", "0", "--save-every", "200"};
const Arguments kResumed = {"--epochs", "60", "--eval-every", "0", "--save-every", "200", "--resume", "auto"};

/// Returns whether the signal set in the given line of /proc/PID/status contains `signal`.
bool has_signal(const Process& process, const std::string& line, int signal) {
  std::istringstream status(read_text("/proc/" + std::to_string(process.id()) + "/status"));
  for (std::string found; std::getline(status, found);)
    if (found.starts_with(line + ":"))
      return ((std::stoull(found.substr(line.size() + 1), nullptr, 16) >> (signal - 1)) & 1) != 0;
  return false;
}

/// Returns the CPU time of all threads of a process.
double cpu_seconds(const Process& process) {
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(process.id(), &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Blocks until the condition is true or the process has ended.
void wait_until(Process& process, const std::function<bool()>& condition) {
  while (process.running() && !condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

class Stopped : public ::testing::TestWithParam<int> {};

TEST_P(Stopped, FinishesTheStepAndSaves) {
  const int signal = GetParam();
  const Workshop workshop;
  ASSERT_EQ(workshop.train("whole", kFlags).exit_code, 0);

  ProcessResult stopped;
  // Retries if the test process was not scheduled in time and the training ended before the signal.
  for (int tries = 0; tries < 4 && stopped.exit_code <= 0; ++tries) {
    std::filesystem::remove_all(workshop.path("run"));
    Process process(workshop.train_arguments("run", kFlags));
    wait_until(process, [&] {
      return read_text(workshop.path("run") / "log.jsonl").find("\"step\":30,") != std::string::npos;
    });
    process.send(signal);
    stopped = process.wait();
  }
  EXPECT_EQ(stopped.exit_code, 128 + signal) << stopped.err;
  EXPECT_THAT(stopped.out, HasSubstr("continue with --resume auto"));
  const std::int64_t step = workshop.events("run", "step").back()["step"];
  EXPECT_LT(step, 600);
  EXPECT_EQ(workshop.events("run", "save").back()["step"], step);

  ASSERT_THAT(workshop.train("run", kResumed), Succeeds());
  EXPECT_EQ(workshop.result("run")["parameters_hash"], workshop.result("whole")["parameters_hash"]);
}

TEST(Run, ProfileTimesEachOperationAndChangesNothing) {
  const Workshop workshop;
  const Arguments flags = {"--max-steps", "7", "--eval-every", "0"};
  const ProcessResult plain = workshop.train("plain", flags);
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  for (const char* devices : {"1", "2"}) {
    const std::string out = std::string("profiled") + devices;
    const ProcessResult run =
        workshop.train(out, with(flags, {"--profile", "2", "--memory", "--devices", devices}));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    for (const char* text : {"module", "conv1", "conv2d", "fc3", "linear", "optimizer", "GFLOP/s",
                             "memory at the peak: ", "parameters and buffers", "f32 [32, 24, 24, 6]"})
      if (devices[0] == '1' || text[0] != 'f') {
        EXPECT_NE(run.out.find(text), std::string::npos) << text << "\n" << run.out;
      }
    EXPECT_EQ(run.out.find("wait for gradients") != std::string::npos, devices[0] == '2') << run.out;
    const std::string text = read_text(workshop.path(out) / "profile.json");
    EXPECT_THAT(problems_of_trace(text), ::testing::IsEmpty());
    const Json trace = Json::parse(text);
    EXPECT_GE(trace["traceEvents"].size(), 2U * 2 * 17) << "two steps, forward and backward";
  }
  EXPECT_EQ(workshop.result("profiled1")["parameters_hash"], workshop.result("plain")["parameters_hash"]);
  EXPECT_FALSE(std::filesystem::exists(workshop.path("plain") / "profile.json"));
  EXPECT_THAT(workshop.train("short", {"--max-steps", "7", "--profile", "5"}),
              FailsWith(2, "--profile 5: found a training of 7 steps, expected at least 8"));
  EXPECT_THAT(workshop.train(
                  "plain", {"--max-steps", "11", "--eval-every", "0", "--resume", "auto", "--profile", "2"}),
              Prints(HasSubstr("warning: --profile 2: no profile, because this run has made 4 steps; "
                               "expected at least 5, of which the first 3 are not profiled\n")));
  EXPECT_THAT(workshop.train("negative", {"--profile", "-1"}), FailsWith(2, "--profile"));
}

TEST(Run, SecondInterruptStopsImmediately) {
  const Workshop workshop;
  // A step of many seconds: fp64 convolutions are plain loops.
  Process process(workshop.train_arguments(
      "slow", {"--model", "resnet18", "--precision", "fp64", "--batch-size", "320", "--resume", "auto"}));
  wait_until(process, [&] { return has_signal(process, "SigCgt", SIGINT); });
  const double before = cpu_seconds(process);
  wait_until(process, [&] { return cpu_seconds(process) > before + 0.2; });  // by now it is in the first step
  process.send(SIGINT);
  wait_until(process, [&] {
    return !has_signal(process, "ShdPnd", SIGINT);
  });  // else the kernel may merge the two signals
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(process.running()) << "the first signal lets the step finish";
  process.send(SIGINT);
  const ProcessResult ended = process.wait();
  EXPECT_EQ(ended.exit_code, 130);
  EXPECT_EQ(ended.err, "\nfinishing this step, then saving; Ctrl-C once more quits at once, unsaved\n");
  EXPECT_TRUE(checkpoints_of(workshop.path("slow")).empty());
}

INSTANTIATE_TEST_SUITE_P(Signals, Stopped, ::testing::Values(SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2));

TEST(Run, IgnoresAHangUpUnderNohup) {
  const Workshop workshop;
  Arguments program = {"/usr/bin/nohup"};
  const Arguments training = workshop.train_arguments("run", kFlags);
  program.insert(program.end(), training.begin(), training.end());
  Process process(program);
  wait_until(process, [&] { return !read_text(workshop.path("run") / "log.jsonl").empty(); });
  process.send(SIGHUP);
  EXPECT_EQ(process.wait().exit_code, 0);
}

}  // namespace
}  // namespace convoy::testing

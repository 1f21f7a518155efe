// Unit tests of parts of apps/ that need no separate process.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <thread>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "convoy/apps/common/machine.h"
#include "convoy/apps/common/output_queue.h"
#include "convoy/apps/common/signals.h"
#include "convoy/apps/common/text.h"
#include "convoy/apps/data/data_source.h"
#include "convoy/apps/flags/config_file.h"
#include "convoy/apps/programs/library_loading.h"
#include "convoy/apps/train/report/evaluation_file.h"
#include "convoy/apps/train/report/reporter.h"
#include "convoy/apps/train/training_state.h"
#include "convoy/kernels/base/error.h"
#include "convoy/kernels/base/json_text.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/flock_fault.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using Json = nlohmann::ordered_json;

/// Returns what `print` leads to in a pipe that is read once print(descriptor) has returned. The object that it returns is
/// destroyed meanwhile.
template <class F>
std::string read_late(const F& print) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  auto queue = print(ends[1]);
  std::string text;
  std::thread reader([&] {
    std::array<char, 65536> block{};
    for (ssize_t count = 0; (count = read(ends[0], block.data(), block.size())) > 0;)
      text.append(block.data(), static_cast<std::size_t>(count));
  });
  queue.reset();
  close(ends[1]);
  reader.join();
  close(ends[0]);
  return text;
}

TEST(OutputQueue, DropsTheOldestLinesOfAReaderThatDoesNotRead) {
  constexpr std::size_t kLines = 100'000;
  const std::string filler(90, 'x');
  const std::string text = read_late([&](int descriptor) {
    auto queue = std::make_unique<OutputQueue>(descriptor);
    queue->push("important\n", /*important=*/true);
    for (std::size_t i = 0; i < kLines; ++i) queue->push(fmt::format("{} {}\n", i, filler));
    return queue;
  });
  EXPECT_THAT(text, ::testing::HasSubstr("important\n"));
  EXPECT_TRUE(text.ends_with(fmt::format("\n{} {}\n", kLines - 1, filler)));
  EXPECT_LT(text.size(), std::size_t{5} << 20);
  const std::size_t at = text.find(" lines dropped, because the output was not read\n");
  ASSERT_NE(at, std::string::npos);
  const std::size_t dropped = std::stoul(text.substr(text.rfind(' ', at - 1)));
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  EXPECT_EQ(dropped + lines, kLines + 2) << "the important one, and the one that tells it";
}

TEST(OutputQueue, KeepsALineOfAnySizeAndReportsNoReaderOnce) {
  const std::string large(std::size_t{6} << 20, 'x');
  const std::string text = read_late([&](int descriptor) {
    auto queue = std::make_unique<OutputQueue>(descriptor);
    queue->drain(100);  // nothing waits
    queue->push(large + "\n");
    queue->drain(0.01);
    queue->drain(100);  // does not wait again
    queue->push("last\n");
    return queue;
  });
  EXPECT_EQ(text, large + "\nlast\n");
}

TEST(OutputQueue, LosesNothingIfItsPipeDoesNotBlock) {
  const std::string text = read_late([&](int descriptor) {
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
    auto queue = std::make_unique<OutputQueue>(descriptor);
    queue->push(std::string(std::size_t{1} << 20, 'x'));  // more than the pipe has room for
    return queue;
  });
  EXPECT_EQ(text.size(), std::size_t{1} << 20);
}

TEST(ConfigFile, ReadsStringsNumbersBooleansAndComments) {
  const std::vector<ConfigEntry> entries = parse_config(
      "# a comment\n\nlr = 1e-3  # and another\nname = 'a # b \"c\"'\r\nbasic=\"x\\\"y\\\\z\\n\"\non = true",
      "test");
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].key, "lr");
  EXPECT_EQ(entries[0].value, "1e-3");
  EXPECT_EQ(entries[0].line, 3);
  EXPECT_EQ(entries[1].value, "a # b \"c\"");
  EXPECT_EQ(entries[2].value, "x\"y\\z\n");
  EXPECT_EQ(entries[3].value, "true");
  EXPECT_EQ(entries[3].line, 6);
}

TEST(ConfigFile, QuotedStringsRoundTrip) {
  for (const char* text : {"", "plain", "it's", "a \"b\"", "both ' and \"", "back\\slash", "tab\tand\nline",
                           "é …", "#", "M\xfcller/it's 9%", "percent-encoded:%41"}) {
    const std::vector<ConfigEntry> entries = parse_config("key = " + quote_for_config(text), "test");
    ASSERT_EQ(entries.size(), 1u) << text;
    EXPECT_EQ(entries[0].value, text);
  }
}

TEST(ConfigFile, RefusesInvalidLines) {
  for (const char* text :
       {"[table]", "key", "key =", "= 3", "a b = 3", "list = [1, 2]", "open = 'x", "open = \"x",
        "bad = \"\\q\"", "two = 1 2", "\"quoted\" = 1", "bytes = 'percent-encoded:%f'"})
    EXPECT_THROW(parse_config(text, "test"), UsageError) << text;
}

TEST(ConfigFile, MayBeginWithAByteOrderMark) {
  const TempDirectory directory;
  const auto entries = read_config_file(directory.write("bom.toml", "\xEF\xBB\xBFlr = 0.1\n"));
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].key, "lr");
  EXPECT_THAT(message_of<UsageError>([&] { read_config_file(directory.write("wide.toml", "\xFF\xFEl")); }),
              ::testing::HasSubstr("wide.toml is a text in UTF-16, expected UTF-8"));
}

TEST(JsonText, ReplacesBytesThatAreNotUtf8AndKeepsPaths) {
  nlohmann::json json;
  set_path(json, "a", "M\xfcller/x 1");
  set_path(json, "b", "Müller");
  EXPECT_EQ(json_text(json), R"({"a":"M�ller/x 1","a_encoded":"M%FCller/x%201","b":"Müller"})");
  const nlohmann::json read = nlohmann::json::parse(json_text(json));
  EXPECT_EQ(path_at(read, "a"), "M\xfcller/x 1");
  EXPECT_EQ(path_at(read, "b"), "Müller");
  EXPECT_EQ(path_at(read, "c"), "");
  EXPECT_EQ(percent_decoded("%4"), std::nullopt);
  EXPECT_EQ(percent_decoded("%zz"), std::nullopt);
}

TEST(ConfigFile, NamesJson) {
  const TempDirectory directory;
  const auto file = directory.write("ds.json", "\n {\"train_batch_size\": 8}");
  EXPECT_THAT(message_of<UsageError>([&] { read_config_file(file); }),
              ::testing::HasSubstr("ds.json is a JSON file, expected a TOML file"));
}

TEST(DataSource, FindsTheDownloadsOfTorchvision) {
  const TempDirectory directory;
  const std::filesystem::path root = directory.path();
  directory.write("MNIST/raw/train-images-idx3-ubyte", "");
  directory.write("cifar-10-batches-bin/data_batch_1.bin", "");
  const auto found = [](const char* dataset, const std::filesystem::path& data) {
    return locate_data({.dataset = dataset, .data = data.string()}).directory;
  };
  EXPECT_EQ(found("mnist", root), root);
  EXPECT_EQ(found("mnist", root / "MNIST"), root / "MNIST");
  EXPECT_EQ(found("mnist", root / "MNIST/raw"), root / "MNIST/raw");
  EXPECT_EQ(found("cifar10", root), root);
  EXPECT_EQ(found("cifar10", root / "cifar-10-batches-bin"), root / "cifar-10-batches-bin");
}

TEST(RunLog, IsTruncatedToTheCheckpoint) {
  const TempDirectory directory;
  const std::filesystem::path file = directory.path() / "log.jsonl";
  {
    RunLog log(file, std::nullopt);
    log.write("start", {{"schema", kLogSchema}});
    for (int step = 1; step <= 4; ++step) log.write("step", {{"step", step}, {"loss", 0.1 + step}});
    log.write("result", {{"steps", 4}});
  }
  EXPECT_EQ((*read_result(file))["steps"], 4);
  { const RunLog log(file, 2); }
  EXPECT_FALSE(read_result(file).has_value());
  std::ifstream in(file);
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2]["step"], 2);
  EXPECT_EQ(lines[2]["loss"].get<double>(), 2.1) << "numbers round-trip exactly";
  { const RunLog log(file, std::nullopt); }
  EXPECT_EQ(std::filesystem::file_size(file), 0u);
}

TEST(RunLog, ElapsedTimeContinuesAfterAResumption) {
  const TempDirectory directory;
  const std::filesystem::path file = directory.path() / "log.jsonl";
  const auto elapsed_of_last_line = [&] {
    std::ifstream in(file);
    std::string last;
    for (std::string line; std::getline(in, line);) last = line;
    return Json::parse(last)["elapsed"].get<double>();
  };
  std::ofstream(file) << R"({"event":"step","elapsed":7.5,"step":2})"
                      << "\n"
                      << R"({"event":"step","elapsed":9.5,"step":3})"
                      << "\n";
  const auto begin = std::chrono::steady_clock::now();
  const auto expect_elapsed_from = [&](double before) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(elapsed_of_last_line(), before);
    EXPECT_LE(elapsed_of_last_line(), before + passed.count() + 1e-3) << "rounded to milliseconds";
  };
  RunLog(file, 2, /*elapsed_before=*/6).write("start", {{"step", 2}});
  expect_elapsed_from(7.5);
  RunLog(file, 2, /*elapsed_before=*/20).write("start", {{"step", 2}});
  expect_elapsed_from(20);
  RunLog(file, std::nullopt).write("start", {{"step", 0}});
  expect_elapsed_from(0);
}

TEST(RunLog, RefusesASecondWriter) {
  const TempDirectory directory;
  const RunLog first(directory.path() / "log.jsonl", std::nullopt);
  EXPECT_TRUE(first.is_locked());
  EXPECT_THROW(RunLog(directory.path() / "log.jsonl", std::nullopt), UsageError);
}

TEST(RunLog, WorksOnAFileSystemWithoutLocks) {
  const TempDirectory directory;
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
    const WithoutLocks without(error);
    RunLog log(directory.path() / "log.jsonl", std::nullopt);
    EXPECT_FALSE(log.is_locked());
    log.write("start", {{"schema", kLogSchema}});
  }
}

TEST(EvaluationFile, IsWrittenToADirectoryThatHasVanished) {
  const TempDirectory directory;
  const std::filesystem::path out = directory.path() / "run";
  Evaluation evaluation{.count = 2, .loss = NAN, .accuracy = 0.5, .classes = 2};
  evaluation.images = {1, 1};
  evaluation.correct = {1, 0};
  evaluation.confusion = {1, 0, 1, 0};
  evaluation.mistakes = {
      {.image = 1, .label = 1, .prediction = 0, .probability = 0.75, .file = "test/b/y.png"}};
  evaluation.mistake_images = Tensor::zeros({1, 4, 5, 1}, DType::u8, Device::cpu());
  write_evaluation(out, 7, evaluation, {"a", "b"});
  const Json json = Json::parse(std::ifstream(out / "evaluation.json"));
  EXPECT_EQ(json["step"], 7);
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_EQ(json["confusion"], (Json{{1, 0}, {1, 0}}));
  EXPECT_EQ(json["mistakes"][0]["probability"], 0.75);
  EXPECT_EQ(json["mistakes"][0]["file"], "test/b/y.png");
  EXPECT_TRUE(std::filesystem::exists(out / "mistakes.png"));
  evaluation.mistakes.clear();
  write_evaluation(out, 8, evaluation, {"a", "b"});
  EXPECT_FALSE(std::filesystem::exists(out / "mistakes.png")) << "of an earlier evaluation";
}

TEST(TrainingState, RoundTripsBitForBit) {
  TrainingState state{.step = 7, .epoch = 1, .epoch_step = 2, .samples = 900, .train_seconds = 0.1 + 0.2};
  training::LossMonitor losses;
  losses.on_step({.step = 6, .samples = 100, .loss = 1.0 / 3, .correct = 61});
  losses.on_step({.step = 7, .samples = 100, .loss = 2.0 / 7, .correct = 62});
  state.losses = losses.state();
  state.stopping.best =
      training::EvaluationResult{.step = 5, .accuracy = 0.1 + 0.7, .loss = 1.0 / 9, .count = 100};
  io::Manifest manifest;
  write_state(state, manifest);
  TrainingState back = read_state(manifest, "test");
  EXPECT_EQ(back.step, 7);
  EXPECT_EQ(back.epoch, 1);
  EXPECT_EQ(back.epoch_step, 2);
  EXPECT_EQ(back.samples, 900);
  EXPECT_EQ(back.train_seconds, state.train_seconds);
  EXPECT_EQ(back.losses.last, state.losses.last);
  EXPECT_FALSE(back.evaluated.has_value());
  EXPECT_EQ(back.stopping.best->accuracy, state.stopping.best->accuracy);
  training::LossMonitor continued;
  continued.restore(back.losses);
  for (training::LossMonitor* each : {&losses, &continued})
    each->on_step({.step = 8, .samples = 50, .loss = 0.1, .correct = 31});
  EXPECT_EQ(continued.average(), losses.average());
  const training::EpochResult epoch = continued.end_epoch(), expected = losses.end_epoch();
  EXPECT_EQ(epoch.loss, expected.loss);
  EXPECT_EQ(epoch.accuracy, expected.accuracy);
  EXPECT_EQ(epoch.samples, 250);

  manifest.extra["training"] = "{\"train_seconds\": 1}";
  EXPECT_THROW(read_state(manifest, "test"), CheckpointError);
  manifest.extra.clear();
  EXPECT_THROW(read_state(manifest, "test"), CheckpointError);
}

TEST(StopSignals, TheSecondInterruptEndsTheProcess) {
  const auto interrupt_twice = [] {
    const StopSignals signals(/*announces=*/true);
    raise(SIGINT);
    raise(SIGINT);
  };
  EXPECT_EXIT(interrupt_twice(), ::testing::ExitedWithCode(130), "Ctrl-C once more quits at once, unsaved");
}

TEST(Duration, IsReadable) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(65.4), "1:05");
  EXPECT_EQ(format_duration(3661), "1:01:01");
}

TEST(Loss, IsReadableIfItIsLarge) {
  EXPECT_EQ(format_loss(1.60944), "1.6094");
  EXPECT_EQ(format_loss(9999.5), "9999.5000");
  EXPECT_EQ(format_loss(107729624498176), "1.08e+14");
  EXPECT_EQ(format_loss(std::numeric_limits<double>::infinity()), "inf");
}

TEST(ProgressLine, LeavesOutPartsUntilItFits) {
  const std::vector<LinePart> parts = {
      {"[=====]", 3}, {"lr 0.1", 2}, {"loss 0.5"}, {"left 1:05"}, {"test 9%", 1}};
  EXPECT_EQ(fit_line(parts, 80), "[=====]  lr 0.1  loss 0.5  left 1:05  test 9%");
  EXPECT_EQ(fit_line(parts, 45), "[=====]  lr 0.1  loss 0.5  left 1:05  test 9%") << "45 columns";
  EXPECT_EQ(fit_line(parts, 44), "lr 0.1  loss 0.5  left 1:05  test 9%");
  EXPECT_EQ(fit_line(parts, 30), "loss 0.5  left 1:05  test 9%");
  EXPECT_EQ(fit_line(parts, 20), "loss 0.5  left 1:05");
  EXPECT_EQ(fit_line(parts, 5), "loss 0.5  left 1:05") << "the rest stays";
  EXPECT_EQ(fit_line({}, 5), "");
}

/// A training of 30 steps of 2 seconds, after a first one of 60, with an evaluation of 7 seconds every 10 steps.
class TimeLeftOfATraining : public ::testing::Test {
 protected:
  void advance(double seconds) {
    now_ += std::chrono::duration_cast<TimeLeft::Clock::duration>(std::chrono::duration<double>(seconds));
  }
  /// Runs until `step` is complete, and the evaluation after it unless it is the last step to run.
  void run_to(std::int64_t step) {
    while (step_ < step) {
      advance(step_ == 0 ? 60 : 2);
      left_.step(++step_, now_);
      if (step_ < step) evaluate();
    }
  }
  void evaluate() {
    if (step_ % 10 != 0) return;
    advance(7);
    left_.evaluated(now_);
  }

  TimeLeft left_{
      {.total_steps = 30, .steps_per_evaluation = 10, .steps_of_evaluation = 3, .final_evaluations = 1}};
  TimeLeft::Clock::time_point now_;
  std::int64_t step_ = 0;
};

TEST_F(TimeLeftOfATraining, CountsStepsAndEvaluations) {
  run_to(1);
  EXPECT_FALSE(left_.seconds().has_value()) << "the first step does not count";
  run_to(2);
  EXPECT_NEAR(left_.seconds().value(), 28 * 2 + 4 * 6, 1e-6) << "an evaluation is taken for 3 steps";
  run_to(10);
  EXPECT_NEAR(left_.seconds().value(), 20 * 2 + 4 * 6, 1e-6);
  evaluate();
  EXPECT_NEAR(left_.seconds().value(), 20 * 2 + 3 * 7, 1e-6) << "its duration is known";
  run_to(25);
  EXPECT_NEAR(left_.seconds().value(), 5 * 2 + 2 * 7, 1e-6);
  run_to(30);
  EXPECT_NEAR(left_.seconds().value(), 2 * 7, 1e-6);
  evaluate();
  EXPECT_NEAR(left_.seconds().value(), 7, 1e-6) << "what follows the last evaluation";
}

TEST(TimeLeft, WithoutAnIntervalCountsTheEvaluationAtTheEnd) {
  TimeLeft left({.total_steps = 5, .steps_of_evaluation = 2});
  const TimeLeft::Clock::time_point start;
  for (int step = 1; step <= 3; ++step) left.step(step, start + std::chrono::seconds(4 * step));
  EXPECT_NEAR(left.seconds().value(), 2 * 4 + 2 * 4, 1e-6);
}

TEST(BusyMachine, CoreTimesAreThoseOfTheGivenCores) {
  const std::string stat =
      "cpu  900 0 0 900 0 0 0 0 0 0\ncpu0 10 1 2 80 5 3 4 6 99 99\ncpu1 7 0 0 3 0 0 0 0 0 0\n"
      "cpu10 1000 0 0 0 0 0 0 0 0 0\nctxt 5\n";
  const CoreTimes first = core_times(stat, {0});
  EXPECT_EQ(first.busy, 10u + 1 + 2 + 3 + 4 + 6);
  EXPECT_EQ(first.total, first.busy + 80 + 5);
  const CoreTimes both = core_times(stat, {0, 1, 64});
  EXPECT_EQ(both.busy, first.busy + 7);
  EXPECT_EQ(both.total, first.total + 10);
  EXPECT_EQ(core_times("cpu0 x", {0}).total, 0u);
}

TEST(BusyMachine, IsReported) {
  std::vector<pid_t> others;
  for (std::size_t i = 0; i < cores_of_this_process().size(); ++i) {
    const pid_t child = fork();
    if (child == 0)
      while (true) asm volatile("");  // else the compiler may drop the loop
    others.push_back(child);
  }
  const std::optional<std::string> warning = busy_machine_warning();
  for (const pid_t child : others) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  EXPECT_THAT(warning.value_or(""), ::testing::HasSubstr("other processes use "));
}

TEST(LibraryLoading, StepRunsInEveryPrecisionOfTheCpu) {
  const DeviceContext cpu = Device::cpu();
  for (const std::string& name : precision_names()) {
    const Precision precision = parse_precision(name);
    if (!supports(cpu, precision)) continue;
    EXPECT_NO_THROW(load_libraries(cpu, precision)) << name;
  }
  EXPECT_FALSE(load_libraries_in_background(cpu, parse_precision("fp32")).joinable());
}

}  // namespace
}  // namespace convoy::testing

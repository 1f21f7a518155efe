// Tests that every flag of convoy-train has a visible effect, mostly on the hash of the trained parameters or
// on the losses in the log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

/// Provides a baseline run, with which the runs with other flags are compared.
class Flags : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    workshop = new Workshop;
    ASSERT_THAT(workshop->train("base"), Succeeds());
    base_hash = hash("base");
  }
  static void TearDownTestSuite() {
    delete workshop;
    workshop = nullptr;
  }

  static std::string hash(const std::string& out) {
    return workshop->result(out).value("parameters_hash", "");
  }

  /// Trains with these flags in a new run directory and returns its name.
  static std::string train(const Arguments& flags) {
    std::string out = "run" + std::to_string(++runs);
    EXPECT_THAT(workshop->train(out, flags), Succeeds());
    return out;
  }
  static std::string hash_with(const Arguments& flags) { return hash(train(flags)); }

  static std::vector<double> losses(const std::string& out) { return workshop->numbers(out, "step", "loss"); }

  static Workshop* workshop;
  static std::string base_hash;
  static int runs;
};
Workshop* Flags::workshop = nullptr;
std::string Flags::base_hash;
int Flags::runs = 0;

TEST_F(Flags, TheSameFlagsGiveTheSameParameters) { EXPECT_EQ(hash_with({}), base_hash); }

TEST_F(Flags, WorkersAndSavingChangeNoParameter) {
  for (const Arguments& flags :
       {Arguments{"--workers", "0"}, Arguments{"--workers", "3"}, Arguments{"--save-every", "3"},
        Arguments{"--eval-every", "0"}, Arguments{"--log-every", "7"}, Arguments{"--keep-last", "1"}})
    EXPECT_EQ(hash_with(flags), base_hash) << flags[0] << " " << flags[1];
}

TEST_F(Flags, TrainingFlagsChangeTheParameters) {
  const Arguments changes[] = {{"--seed", "2"},
                               {"--batch-size", "16"},
                               {"--optimizer", "adam"},
                               {"--optimizer", "adamw"},
                               {"--optimizer", "muon"},
                               {"--optimizer", "muon", "--sgd-lr", "0.01"},
                               {"--optimizer", "muon", "--momentum", "0.5"},
                               {"--lr", "0.01"},
                               {"--bias-lr", "0.01"},
                               {"--momentum", "0.5"},
                               {"--no-nesterov"},
                               {"--weight-decay", "0.1"},
                               {"--label-smoothing", "0.1"},
                               {"--clip-norm", "0.1"},
                               {"--schedule", "linear"},
                               {"--schedule", "constant"},
                               {"--schedule", "step"},
                               {"--warmup", "0.5"},
                               {"--augment", "crop=2"},
                               {"--augment", "flip"},
                               {"--augment", "cutout=6"},
                               {"--augment", "crop=2,reflect"},
                               {"--epochs", "1"},
                               {"--max-steps", "7"},
                               {"--precision", "fp64"},
                               {"--overfit-batch"},
                               {"--image-size", "32"}};
  std::map<std::string, std::string> seen = {{base_hash, "no flag"}};
  for (const Arguments& change : changes) {
    std::string name;
    for (const std::string& word : change) name += word + " ";
    const bool is_new = seen.try_emplace(hash_with(change), name).second;
    EXPECT_TRUE(is_new) << name << "gives the same parameters as other flags";
  }
}

TEST_F(Flags, ModelsDiffer) {
  std::map<std::string, int> parameters;
  for (const char* model : {"lenet", "resnet20", "resnet18"}) {
    const ProcessResult result = run_program({program("convoy-train"), "--model", model, "--summary"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("conv1"));
    parameters[result.out] = 1;
  }
  EXPECT_EQ(parameters.size(), 3u);
  const auto summary = [](const char* stem) {
    return run_program({program("convoy-train"), "--model", "resnet18", "--stem", stem, "--summary"}).out;
  };
  EXPECT_EQ(summary("auto"), summary("cifar"));
  EXPECT_NE(summary("cifar"), summary("imagenet"));
  EXPECT_THAT(run_program({program("convoy-train"), "--summary"}).out, HasSubstr("272,474"));
}

TEST_F(Flags, MicroBatchesAddUpToTheBatch) {
  // LeNet has no batch norm, so only the order of sums differs. In f64, the error of 20 steps is a few
  // thousand roundings.
  const std::vector<double> whole = losses(train({"--precision", "fp64"}));
  const std::vector<double> parts = losses(train({"--precision", "fp64", "--micro-batch-size", "9"}));
  ASSERT_EQ(whole.size(), 20u);
  ASSERT_EQ(parts.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-9 * whole[i]) << i;
  EXPECT_NE(parts, whole) << "the batch was not divided";
}

TEST_F(Flags, PrecisionsAgreeToTheirRounding) {
  const std::vector<double> single = losses("base"), exact = losses(train({"--precision", "fp64"}));
  ASSERT_EQ(single.size(), exact.size());
  // The first loss precedes all steps: its error is that of one forward pass, a few hundred roundings of
  // 6e-8.
  EXPECT_NEAR(single[0], exact[0], 1e-5 * exact[0]);
  EXPECT_NE(single[0], exact[0]);
}

TEST_F(Flags, StepsAndEpochsCount) {
  EXPECT_EQ(workshop->result("base")["steps"], 20);
  EXPECT_EQ(workshop->result("base")["samples"], 640);
  EXPECT_EQ(workshop->result(train({"--max-steps", "13"}))["steps"], 13);
  EXPECT_EQ(workshop->result(train({"--epochs", "1", "--max-steps", "13"}))["steps"], 10);
  EXPECT_EQ(workshop->result(train({"--epochs", "3", "--max-steps", "13"}))["steps"], 13);
  EXPECT_EQ(workshop->result(train({"--epochs", "1", "--batch-size", "300"}))["steps"], 2)
      << "320 = 300 + 20";
}

TEST_F(Flags, EvaluationsAndSavesComeWhenAsked) {
  const auto steps = [&](const std::string& out, const char* event) {
    std::vector<std::int64_t> found;
    for (const Json& line : workshop->events(out, event)) found.push_back(line["step"]);
    return found;
  };
  using Steps = std::vector<std::int64_t>;
  EXPECT_EQ(steps("base", "eval"), (Steps{10, 20}));
  EXPECT_EQ(steps("base", "save"), (Steps{10, 20}));
  const std::string often =
      train({"--save-every", "6", "--eval-every", "0", "--keep-last", "0", "--log-every", "9"});
  EXPECT_EQ(steps(often, "eval"), (Steps{20}));
  EXPECT_EQ(steps(often, "save"), (Steps{6, 12, 18, 20}));
  EXPECT_EQ(steps(often, "step"), (Steps{9, 18, 20}));
  EXPECT_EQ(checkpoints_of(workshop->path(often)).size(), 4u);
  const std::string every_other = train({"--epochs", "4", "--eval-every", "2"});
  EXPECT_EQ(steps(every_other, "eval"), (Steps{20, 40}));
}

TEST_F(Flags, CheckpointsAreKeptAsAsked) {
  const std::string two = train({"--save-every", "2", "--keep-last", "2", "--no-keep-best"});
  EXPECT_EQ(checkpoints_of(workshop->path(two)).size(), 2u);
  EXPECT_FALSE(std::filesystem::exists(workshop->path(two) / "checkpoints" / "BEST"));
  // With a learning rate of 0, the first evaluation remains the best one, so its checkpoint must be kept.
  const std::string best = train({"--epochs", "4", "--lr", "0", "--keep-last", "1"});
  const std::vector<std::filesystem::path> kept = checkpoints_of(workshop->path(best));
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].filename(), "step_000010");
  EXPECT_EQ(read_text(workshop->path(best) / "checkpoints" / "BEST"), "step_000010\n");
  EXPECT_EQ(workshop->result(best)["best_step"], 10);
}

TEST_F(Flags, OverfittingOneBatchDrivesItsLossDown) {
  const std::string out = train({"--overfit-batch", "--max-steps", "60"});
  EXPECT_LT(losses(out).back(), 0.05);
  EXPECT_EQ(workshop->events(out, "start")[0]["steps_per_epoch"], 1);
  EXPECT_EQ(workshop->events(out, "eval").size(), 1u) << "an evaluation per epoch would be one per step";
}

TEST_F(Flags, ThreadsMatchTheLog) {
  const std::string out = train({"--threads", "2"});
  EXPECT_EQ(workshop->events(out, "start")[0]["config"]["threads"], 2);
  // Counts the threads of the process while it trains.
  const auto max_threads = [&](const char* threads) {
    std::string name = std::string("threads") + threads;
    Process process(workshop->train_arguments(
        name, {"--threads", threads, "--workers", "0", "--max-steps", "40", "--eval-every", "0"}));
    std::ptrdiff_t maximum = 0;
    while (process.running()) {
      std::error_code error;
      std::filesystem::directory_iterator tasks("/proc/" + std::to_string(process.id()) + "/task", error),
          end;
      std::ptrdiff_t count = 0;
      for (; !error && tasks != end; tasks.increment(error)) ++count;
      maximum = std::max(maximum, count);
    }
    EXPECT_EQ(process.wait().exit_code, 0);
    return maximum;
  };
  EXPECT_LT(max_threads("1"), max_threads("3"));
}

TEST_F(Flags, TraceIsAChromeTrace) {
  const std::string out = train({"--trace", workshop->path("traces/trace.json").string()});
  const Json trace = Json::parse(read_text(workshop->path("traces/trace.json")));
  std::map<std::string, int> names;
  for (const Json& event : trace["traceEvents"]) ++names[event.value("name", "")];
  EXPECT_EQ(names["forward"], 20);
  EXPECT_EQ(names["backward"], 20);
  EXPECT_EQ(names["optimizer"], 20);
  EXPECT_EQ(names["data wait"], 20);
  EXPECT_EQ(names["evaluation"], 2);
  EXPECT_EQ(names["save"], 2);
}

TEST_F(Flags, DryRunWritesNothing) {
  EXPECT_THAT(workshop->train("dry", {"--dry-run"}), Prints(HasSubstr("nothing was written")));
  EXPECT_FALSE(std::filesystem::exists(workshop->path("dry")));
  EXPECT_EQ(workshop->train("dry", {"--dry-run", "--model", "resnet20", "--image-size", "1"}).exit_code, 0);
  EXPECT_EQ(workshop->train("dry", {"--dry-run", "--image-size", "4"}).exit_code, 2) << "too small for LeNet";
}

TEST_F(Flags, ConfigFileReproducesARun) {
  const std::filesystem::path config = workshop->path("base") / "config.toml";
  const ProcessResult again = run_program(
      {program("convoy-train"), "--config", config.string(), "--out", workshop->path("again").string()});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(hash("again"), base_hash);
  const auto without_out = [](std::string text) {
    const std::size_t place = text.find("\nout = ");
    return text.erase(place, text.find('\n', place + 1) - place);
  };
  EXPECT_EQ(without_out(read_text(workshop->path("again") / "config.toml")), without_out(read_text(config)));

  const ProcessResult printed =
      run_program({program("convoy-train"), "--config", config.string(), "--print-config"});
  EXPECT_EQ(printed.out, read_text(config));
  const ProcessResult changed =
      run_program({program("convoy-train"), "--config", config.string(), "--print-config", "--lr", "0.125"});
  EXPECT_THAT(changed.out, HasSubstr("\nlr = 0.125\n"));
}

TEST_F(Flags, ConfigFileErrorsNameLineAndKey) {
  const auto mistake = [&](const std::string& text) {
    const std::filesystem::path file = workshop->directory().write("mistake.toml", text);
    const ProcessResult result =
        run_program({program("convoy-train"), "--config", file.string(), "--print-config"});
    EXPECT_EQ(result.exit_code, 2) << text;
    return result.err;
  };
  EXPECT_THAT(mistake("seed = 3\nbatchsize = 3\n"),
              HasSubstr(":2: batchsize: unknown key; did you mean 'batch-size'?"));
  EXPECT_THAT(mistake("lr = 'fast'\n"), HasSubstr(":1: lr: found 'fast', expected a number"));
  EXPECT_THAT(mistake("dry-run = true\n"), HasSubstr("unknown key"));
  EXPECT_THAT(mistake("seed = 3\nseed = 4\n"), HasSubstr(":2: seed: duplicate key"));
  EXPECT_THAT(mistake("[training]\n"), HasSubstr(":1: "));
  EXPECT_THAT(mistake("seed\n"), HasSubstr("expected '=' after 'seed'"));
}

TEST_F(Flags, DataIsFoundInDocumentedDirectories) {
  const auto train_in = [&](const std::filesystem::path& directory, const std::string& data,
                            const std::string& cache) {
    return run_program({program("convoy-train"), "--model", "lenet", "--dataset", "mnist", "--no-download",
                        "--max-steps", "1", "--dry-run"},
                       {.environment = {{"CONVOY_DATA", data}, {"XDG_CACHE_HOME", cache}},
                        .directory = directory,
                        .input = ""});
  };
  const std::filesystem::path empty = workshop->path("empty");
  std::filesystem::create_directories(empty);
  write_digits(workshop->path("here") / "data" / "mnist");
  write_digits(workshop->path("cache") / "convoy" / "mnist");
  const std::string none;
  EXPECT_EQ(train_in(empty, none, none).exit_code, 3);
  EXPECT_THAT(train_in(empty, workshop->path("digits").string(), none).out, HasSubstr("digits"));
  EXPECT_THAT(train_in(workshop->path("here"), none, none).out, HasSubstr("here/data/mnist"));
  EXPECT_THAT(train_in(empty, none, workshop->path("cache").string()).out, HasSubstr("cache/convoy/mnist"));
}

TEST_F(Flags, FallbackShapesReplaceMissingData) {
  ASSERT_THAT(
      run_program({program("convoy-train"), "--model", "lenet", "--no-download", "--fallback-shapes",
                   "--max-steps", "2", "--threads", "1", "--out", workshop->path("fallback").string()},
                  {.environment = {{"CONVOY_DATA", ""}, {"XDG_CACHE_HOME", workshop->path("empty").string()}},
                   .directory = workshop->directory().path(),
                   .input = ""}),
      Succeeds());
  const std::vector<Json> warnings = workshop->events("fallback", "warning");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0]["message"].get<std::string>(), HasSubstr("shapes"));
  EXPECT_EQ(workshop->events("fallback", "start")[0]["config"]["dataset"], "shapes");
}

TEST_F(Flags, CorruptImagesAreRefusedOrSkipped) {
  write_color_directories(workshop->path("colors"));
  std::ofstream(workshop->path("colors") / "train" / "red" / "broken.bmp") << "BM, but nothing more";
  const Arguments common = {
      program("convoy-train"),           "--model",      "resnet20", "--dataset",   "folder", "--data",
      workshop->path("colors").string(), "--batch-size", "12",       "--max-steps", "2",      "--out"};
  Arguments refused = common, skipped = common;
  refused.push_back(workshop->path("refused").string());
  skipped.insert(skipped.end(), {workshop->path("skipped").string(), "--skip-corrupt"});
  EXPECT_THAT(run_program(refused), FailsWith(3, "broken.bmp"));
  ASSERT_THAT(run_program(skipped), Succeeds());
  ASSERT_EQ(workshop->events("skipped", "warning").size(), 1u);
  EXPECT_THAT(workshop->events("skipped", "warning")[0]["message"].get<std::string>(),
              HasSubstr("broken.bmp"));
}

}  // namespace
}  // namespace convoy::testing

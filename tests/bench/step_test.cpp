// Tests of convoy-bench-step: output and rejected flags, at small sizes. Times are not tested.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/programs/results.h"
#include "tests/testing/support/image_files.h"
#include "tests/testing/support/process.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

/// A program, always started with the same first arguments.
class BenchProgram : public ::testing::Test {
 protected:
  explicit BenchProgram(std::string name, Arguments arguments = {})
      : name_(std::move(name)), arguments_(std::move(arguments)) {}

  ProcessResult run(const Arguments& more, const ProcessOptions& options = {}) const {
    Arguments all = {std::filesystem::read_symlink("/proc/self/exe").parent_path() / name_};
    all.insert(all.end(), arguments_.begin(), arguments_.end());
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all, options);
  }
  /// Returns the results of a successful run; `out` becomes its output.
  Json measure(Arguments more, const ProcessOptions& options = {}, std::string* out = nullptr) const {
    const std::string file = directory.path() / "figures.json";
    more.insert(more.end(), {"--json", file});
    const ProcessResult result = run(more, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    if (out != nullptr) *out = result.out;
    std::ifstream in(file);
    return Json::parse(in);
  }
  void expect_refusal(const Arguments& arguments, const std::string& what, int code = 2) const {
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, ::testing::HasSubstr(name_ + ": error: "));
    EXPECT_THAT(result.err, ::testing::HasSubstr(what));
    EXPECT_EQ(result.out, "");
  }

  TempDirectory directory;

 private:
  std::string name_;
  Arguments arguments_;
};

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Step : public BenchProgram {
 protected:
  Step() : BenchProgram("convoy-bench-step", {"--model=lenet", "--batch-size=4", "--device=cpu"}) {}

  Json measure(Arguments more, const ProcessOptions& options = {}) const {
    more.insert(more.end(), {"--threads=1", "--steps=2", "--rounds=3", "--warmup=1"});
    return BenchProgram::measure(more, options);
  }
};

void expect_spread(const Json& spread) {
  EXPECT_GT(spread["lowest"].get<double>(), 0);
  EXPECT_LE(spread["lowest"].get<double>(), spread["median"].get<double>());
  EXPECT_LE(spread["median"].get<double>(), spread["highest"].get<double>());
}

TEST(Spread, HasMedianMinimumAndMaximum) {
  const Json odd = bench::spread_of({5, 1, 2});
  EXPECT_EQ(odd["median"], 2);
  EXPECT_EQ(odd["lowest"], 1);
  EXPECT_EQ(odd["highest"], 5);
  EXPECT_EQ(bench::spread_of({4, 1, 2, 9})["median"], 3);
}

TEST_F(Step, WritesResultsAndContext) {
  const Json figures = measure({"--image-size", "32", "--optimizer", "adam", "--precision", "fp64"});
  EXPECT_EQ(figures["model"], "lenet");
  EXPECT_EQ(figures["batch_size"], 4);
  EXPECT_EQ(figures["optimizer"], "adam");
  EXPECT_EQ(figures["precision"], "fp64");
  EXPECT_EQ(figures["threads"], 1);
  EXPECT_EQ(figures["world_size"], 1);
  EXPECT_THAT(figures["libraries"].dump(), HasSubstr("oneDNN"));
  EXPECT_GT(figures["machine"]["cores"].get<int>(), 0);
  EXPECT_EQ(figures["step_ms_by_round"].size(), 3u);  // without the warm-up
  expect_spread(figures["step_ms"]);
  expect_spread(figures["images_per_second"]);
  // With three rounds, both medians are those of the same round.
  EXPECT_NEAR(
      figures["images_per_second"]["median"].get<double>() * figures["step_ms"]["median"].get<double>(), 4e3,
      1e-6 * 4e3);
  EXPECT_GT(figures["peak_bytes"].get<std::int64_t>(), 62006 * 8 * 4);  // parameters, gradients, two moments
}

// Without loader threads, because the number of batches that they keep in memory depends on timing.
TEST_F(Step, SteadyStateMakesNoSystemAllocations) {
  const auto allocations = [&](const char* cache) {
    return measure({"--workers", "0"}, {.environment = {{"CONVOY_MEMORY_CACHE", cache}}})["allocations"]
        .get<int>();
  };
  EXPECT_EQ(allocations("on"), 0);
  EXPECT_GT(allocations("off"), 0) << "the counter does not count";
}

TEST_F(Step, MeasuresSeveralRanks) {
  const Json figures = measure({"--devices", "2"});
  EXPECT_EQ(figures["world_size"], 2);
  EXPECT_THAT(figures["ranks"].get<std::string>(), StartsWith("2 on 1 host, "));
}

TEST_F(Step, RejectsInvalidFlags) {
  expect_refusal({"--rounds", "0"}, "--rounds");
  expect_refusal({"--count"}, "--count: found --device cpu, expected cuda");
  expect_refusal({"--micro-batch-size", "5"}, "--micro-batch-size 5: expected at most --batch-size 4");
  expect_refusal({"--precison", "fp32"}, "--precision");
}

TEST_F(Step, ReportsAnUnwritableFileBeforeMeasuring) {
  const ProcessResult result = run({"--json", directory.path() / "missing" / "figures.json"});
  EXPECT_EQ(result.exit_code, 8) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--json"));
  EXPECT_EQ(result.out, "");
}

// Tests of convoy-bench-loader: counts, output and rejected flags. Times are not tested.

using ::testing::AllOf;

class LoaderBench : public BenchProgram {
 protected:
  /// Writes 7 training images of 2 classes and 2 test images to `directory`/data.
  LoaderBench() : BenchProgram("convoy-bench-loader") {
    for (int i = 0; i < 9; ++i)
      directory.write(std::filesystem::path("data") / (i < 7 ? "train" : "test") /
                          (i % 2 == 0 ? "ape" : "bee") / (std::to_string(i) + ".jpg"),
                      jpeg(Picture::ramp(12, 10, 3)));
  }
  std::string data() const { return directory.path() / "data"; }
};

TEST_F(LoaderBench, CountsImagesReadAndBatched) {
  std::string out;
  const Json figures =
      measure({"--data", data(), "--batch-size", "3", "--epochs", "4", "--workers", "1"}, {}, &out);
  EXPECT_THAT(out, AllOf(HasSubstr("3 images each, 1 workers"), HasSubstr("crop 4, flip"),
                         HasSubstr("including reading")));
  EXPECT_EQ(figures["image"], Json({10, 12, 3}));
  EXPECT_EQ(figures["reading"]["images"], 9);
  ASSERT_EQ(figures["epochs"].size(), 4u);
  for (const Json& epoch : figures["epochs"]) {
    EXPECT_EQ(epoch["images"], 7);
    EXPECT_GT(epoch["seconds"].get<double>(), 0);
  }
  EXPECT_EQ(figures["workers"], 1);
  EXPECT_GT(figures["machine"]["cores"].get<int>(), 0);
  // The first epoch includes the reading of the training images, 7 of 9.
  const Json &first = figures["first_epoch"], &reading = figures["reading"], &made = figures["epochs"][0];
  EXPECT_EQ(first["images"], 7);
  for (const char* part : {"seconds", "core_seconds"})
    EXPECT_DOUBLE_EQ(first[part].get<double>(),
                     7.0 / 9 * reading[part].get<double>() + made[part].get<double>());
  EXPECT_DOUBLE_EQ(first["images_per_second"].get<double>(), 7 / first["seconds"].get<double>());
  EXPECT_GE(figures["images_per_second"]["highest"].get<double>(), 7 / made["seconds"].get<double>());
}

TEST_F(LoaderBench, RejectsInvalidFlags) {
  expect_refusal({}, "--data is missing");
  expect_refusal({"--data", directory.path() / "none"}, "is no directory", 3);
  expect_refusal({"--data", data(), "--epochs", "0"}, "--epochs");
  expect_refusal({"--data", data(), "--augment", "twist"}, "--augment: found 'twist'");
  expect_refusal({"--data", data(), "--json", directory.path() / "missing" / "figures.json"}, "--json", 8);
}

}  // namespace

}  // namespace convoy::testing

// Tests of convoy-bench-step: output and rejected flags, at small sizes. Times are not tested.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/step/spread.h"
#include "tests/testing/support/process.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

class Step : public ::testing::Test {
 protected:
  ProcessResult run(const Arguments& more, const ProcessOptions& options = {}) const {
    Arguments arguments = {
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "convoy-bench-step",
        "--model",
        "lenet",
        "--batch-size",
        "4",
        "--device",
        "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, options);
  }
  Json measure(Arguments more, const ProcessOptions& options = {}) const {
    more.insert(more.end(),
                {"--threads", "1", "--steps", "2", "--rounds", "3", "--warmup", "1", "--json", json()});
    const ProcessResult result = run(more, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read(json());
  }
  static Json read(const std::string& file) {
    std::ifstream in(file);
    return Json::parse(in);
  }
  std::string json() const { return directory.path() / "figures.json"; }
  void expect_refusal(const Arguments& arguments, const std::string& what) const {
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, AllOf(StartsWith("convoy-bench-step: error: "), HasSubstr(what)));
    EXPECT_EQ(result.out, "");
  }
  /// Returns a fake Python interpreter that runs `step` in place of pytorch_step.py.
  std::string python_with(const std::string& step, const std::string& version) const {
    const std::string script = directory.write("step.py", step);
    const std::filesystem::path python = directory.write(
        "python", "#!/bin/sh\ncase \"$1\" in\n-c) echo " + version + ";;\n*/pytorch_step.py) exec python3 " +
                      script + " \"$@\";;\n*) exec python3 -B \"$@\";;\nesac\n");
    std::filesystem::permissions(python, std::filesystem::perms::owner_all);
    return python;
  }

  TempDirectory directory;
};

void expect_spread(const Json& spread) {
  EXPECT_GT(spread["lowest"].get<double>(), 0);
  EXPECT_LE(spread["lowest"].get<double>(), spread["median"].get<double>());
  EXPECT_LE(spread["median"].get<double>(), spread["highest"].get<double>());
}

TEST(Spread, HasMedianMinimumAndMaximum) {
  const bench::Spread odd = bench::spread_of({5, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.lowest, 1);
  EXPECT_EQ(odd.highest, 5);
  EXPECT_EQ(bench::spread_of({4, 1, 2, 9}).median, 3);
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
  EXPECT_FALSE(figures.contains("breakdown"));
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

void expect_parts(const Json& breakdown, const std::vector<std::string>& positive) {
  const double step = breakdown["step_ms"];
  double sum = 0, percent = 0;
  std::vector<std::string> names;
  for (const auto& [name, part] : breakdown["parts"].items()) {
    names.push_back(name);
    EXPECT_GE(part["ms"].get<double>(), 0) << name;
    sum += part["ms"].get<double>();
    percent += part["percent"].get<double>();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"data", "forward", "backward", "exposed communication",
                                             "optimizer", "idle"}));
  EXPECT_NEAR(sum, step, 1e-9 * step);
  EXPECT_NEAR(percent, 100, 1e-7);
  for (const std::string& name : positive) EXPECT_GT(breakdown["parts"][name]["ms"].get<double>(), 0) << name;
}

TEST_F(Step, PartsOfTheBreakdownAddUpToTheStep) {
  const Json figures = measure({"--breakdown", "--micro-batch-size", "3"});
  expect_parts(figures["breakdown"], {"forward", "backward", "optimizer"});
}

TEST_F(Step, MeasuresSeveralRanks) {
  const Json figures = measure({"--breakdown", "--devices", "2"});
  EXPECT_EQ(figures["world_size"], 2);
  EXPECT_THAT(figures["ranks"].get<std::string>(), StartsWith("2 on 1 host, "));
  expect_parts(figures["breakdown"], {"forward", "backward", "exposed communication", "optimizer"});
}

TEST_F(Step, RejectsInvalidFlags) {
  expect_refusal({"--rounds", "0"}, "--rounds");
  expect_refusal({"--cold-start"}, "--cold-start: requires --compare-pytorch");
  expect_refusal({"--python", "python3"}, "--python: requires --compare-pytorch");
  expect_refusal({"--compare-pytorch", "--breakdown"}, "--breakdown: not supported with --compare-pytorch");
  expect_refusal({"--compare-pytorch", "--devices", "2"}, "--devices: not supported with --compare-pytorch");
  expect_refusal({"--compare-pytorch", "--cold-start", "--steps", "3"},
                 "--steps: not supported with --cold-start");
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

TEST_F(Step, ComparisonRequiresAPythonWithTorch) {
  expect_refusal({"--compare-pytorch", "--python", directory.path() / "none"},
                 "found 'No such file or directory', expected a Python interpreter with torch");
  const std::filesystem::path bare = directory.write(
      "bare",
      "#!/bin/sh\necho Traceback >&2\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n");
  std::filesystem::permissions(bare, std::filesystem::perms::owner_all);
  expect_refusal({"--compare-pytorch", "--python", bare}, "No module named 'torch'");
}

// Reports 1000 ms per step for channels_last, 500 ms for the other format, and 7 bytes.
constexpr const char* kPyTorch = R"(
import json, sys
ms = 1000 if "channels_last" in sys.argv else 500
print(json.dumps({"event": "first step", "torch": "9.8.7"}))
print(json.dumps({"event": "warm"}), flush=True)
for line in sys.stdin:
    print(json.dumps({"event": "window", "step_ms": ms, "peak_bytes": 7}), flush=True)
)";

TEST_F(Step, ComparesWithTheFasterPyTorchFormat) {
  const ProcessResult result =
      run({"--compare-pytorch", "--python", python_with(kPyTorch, "9.8.7"), "--threads", "1", "--steps", "1",
           "--rounds", "2", "--warmup", "1", "--json", json()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("PyTorch 9.8.7"), HasSubstr("times eager:contiguous_format")));
  const Json comparison = read(json())["comparison"];
  EXPECT_EQ(comparison["fastest"], "eager:contiguous_format");
  const Json& ours = comparison["sides"]["convoy"];
  const Json& ratio = comparison["ratios_by_round"]["eager:contiguous_format"];
  expect_spread(ratio);
  // PyTorch's rate is constant (4 images per 0.5 s), so the extremes of the ratio follow from Convoy's rates.
  EXPECT_NEAR(ratio["lowest"].get<double>(), ours["lowest"].get<double>() / 8,
              1e-9 * ratio["lowest"].get<double>());
  EXPECT_NEAR(ratio["highest"].get<double>(), ours["highest"].get<double>() / 8,
              1e-9 * ratio["highest"].get<double>());
  EXPECT_THAT(result.out, HasSubstr("of PyTorch's"));
}

TEST_F(Step, ComparesColdStarts) {
  const ProcessResult result = run({"--compare-pytorch", "--cold-start", "--python",
                                    python_with(kPyTorch, "9.8.7"), "--rounds", "1", "--json", json()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json comparison = read(json())["comparison"];
  EXPECT_NEAR(comparison["ratio"].get<double>(),
              comparison["seconds"]["convoy"].get<double>() / comparison["seconds"]["pytorch"].get<double>(),
              1e-9);
}

TEST_F(Step, ReportsWhyPyTorchWasNotMeasured) {
  const ProcessResult result =
      run({"--compare-pytorch", "--python", python_with("import sys\nsys.exit('it is too old')\n", "1.0"),
           "--threads", "1", "--steps", "1", "--rounds", "1", "--warmup", "0"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("PyTorch was not measured"), HasSubstr("it is too old")));
}

}  // namespace
}  // namespace convoy::testing

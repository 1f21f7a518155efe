// Tests of convoy-bench-step: output and rejected flags, at small sizes. Times are not tested.
#include "bench/programs/results.h"
#include "tests/bench/bench_programs.h"

namespace convoy::testing {
namespace {

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

}  // namespace
}  // namespace convoy::testing

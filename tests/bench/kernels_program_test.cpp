// Tests of the program convoy-bench-kernels: output and rejected flags. Times are not tested.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/testing/op_cases/model_case.h"
#include "tests/testing/support/process.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

ProcessResult run(const Arguments& more, const char* program = "convoy-bench-kernels") {
  Arguments arguments = {std::filesystem::read_symlink("/proc/self/exe").parent_path() / program};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments);
}

/// Runs the benchmark with small arrays and a minimal number of calls, and returns its JSON.
Json measure(Arguments more) {
  const TempDirectory directory;
  const std::string file = directory.path() / "figures.json";
  more.insert(more.end(), {"--device", "cpu", "--threads", "1", "--elements", "4096", "--batch-size", "2",
                           "--benchmark_min_time=0.0001", "--benchmark_out=" + file});
  const ProcessResult result = run(more);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::ifstream in(file);
  return Json::parse(in);
}

double number(const Json& context, const std::string& key) {
  return std::stod(context[key].get<std::string>());
}

TEST(BenchKernels, MeasuresAnOpOfAUser) {
  const ProcessResult table = run({"--table", "--benchmark_filter=user"}, "custom_op_benchmark");
  EXPECT_EQ(table.exit_code, 0) << table.err;
  // softsign states no cost: 8.4 million floats are read and written; backward reads two arrays and writes one.
  EXPECT_THAT(table.out, AllOf(HasSubstr("user/softsign"), HasSubstr("67.11"), HasSubstr("100.66")))
      << table.out;
  const ProcessResult rows =
      run({"--benchmark_list_tests", "--benchmark_filter=softsign|ops/exp_"}, "custom_op_benchmark");
  EXPECT_THAT(rows.out, AllOf(HasSubstr("user/softsign/forward"), HasSubstr("user/softsign/backward"),
                              HasSubstr("ops/exp_")));
  const ProcessResult error = run({"--batch-size", "0"}, "custom_op_benchmark");
  EXPECT_EQ(error.exit_code, 2);
  EXPECT_THAT(error.err, StartsWith("custom_op_benchmark: error: --batch-size"));
}

TEST(BenchKernels, ComparesOpsWithTheRoofline) {
  const Json figures = measure({"--benchmark_filter=^lenet/(linear_120x84|flatten)"});
  const Json& context = figures["context"];
  EXPECT_EQ(context["precision"], "fp32");
  EXPECT_EQ(context["batch_size"], "2");
  EXPECT_EQ(context["device"], "cpu");
  EXPECT_EQ(context["threads"], "1");
  EXPECT_THAT(context["libraries"].get<std::string>(), HasSubstr("oneDNN"));
  const double copy = number(context, "copy_GB/s"), gemm = number(context, "product_GFLOP/s");
  EXPECT_GT(copy, 0);
  EXPECT_GT(gemm, 0);

  const std::vector<ModelCase> cases = lenet_cases({.batch = 2});
  std::size_t rows = 0;
  for (const ModelCase& c : cases) {
    for (const bool is_forward : {true, false}) {
      const std::string name = c.name() + (is_forward ? "/forward/manual_time" : "/backward/manual_time");
      for (const Json& row : figures["benchmarks"]) {
        if (row["name"] != name) continue;
        SCOPED_TRACE(name);
        ++rows;
        const Cost& cost = is_forward ? c.cost.forward : c.cost.backward;
        const double ns = row["real_time"].get<double>() * 1e3;  // rows are in microseconds
        const auto bytes = static_cast<double>(cost.bytes), flops = static_cast<double>(cost.flops);
        EXPECT_NEAR(row["GB/s"].get<double>(), bytes / ns, 1e-6 * bytes / ns);
        EXPECT_NEAR(row["GFLOP/s"].get<double>(), flops / ns, 1e-6 * flops / ns);
        const double fraction = std::max(bytes / copy, flops / gemm) / ns;
        EXPECT_NEAR(row["of_ceiling"].get<double>(), fraction,
                    1e-5 * fraction);  // the context has six digits
        EXPECT_EQ(row["per_step"], 1);
        EXPECT_EQ(row["label"].get<std::string>().substr(0, 3), "[2,");
      }
    }
  }
  EXPECT_EQ(rows, 4U);
  EXPECT_EQ(figures["benchmarks"].size(), 4U);
}

TEST(BenchKernels, SkipsTheGemmCeilingWithoutOps) {
  const Json figures = measure({"--benchmark_filter=^relu_backward"});
  ASSERT_EQ(figures["benchmarks"].size(), 1U);
  EXPECT_GT(figures["benchmarks"][0]["of_copy"].get<double>(), 0);
  EXPECT_GT(number(figures["context"], "copy_GB/s"), 0);
  EXPECT_FALSE(figures["context"].contains("product_GFLOP/s"));
}

TEST(BenchKernels, UsesTheRequestedPrecision) {
  const Json figures = measure({"--precision", "fp64", "--benchmark_filter=ops/relu_.*forward"});
  EXPECT_EQ(figures["context"]["precision"], "fp64");
  const Json& row = figures["benchmarks"][0];
  EXPECT_NEAR(row["GB/s"].get<double>(), 2 * 2 * 32 * 32 * 64 * 8 / (row["real_time"].get<double>() * 1e3),
              1e-6 * row["GB/s"].get<double>());
}

// compare.py needs repetitions. Google Benchmark aborts if their numbers of iterations differ, and the number
// of calls that take some milliseconds varies.
TEST(BenchKernels, RepetitionsHaveEqualIterations) {
  const Json figures =
      measure({"--benchmark_filter=^lenet/(linear_84x10|scale_loss)", "--benchmark_repetitions=5"});
  std::map<std::string, std::set<std::int64_t>> iterations;
  for (const Json& row : figures["benchmarks"])
    if (row["run_type"] == "iteration") iterations[row["name"]].insert(row["iterations"].get<std::int64_t>());
  EXPECT_EQ(iterations.size(), 4U);
  for (const auto& [name, found] : iterations) EXPECT_EQ(found.size(), 1U) << name;
}

TEST(BenchKernels, PrintsListAndTableWithoutMeasuring) {
  const ProcessResult list = run({"--benchmark_list_tests", "--benchmark_filter=lenet/flatten"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_EQ(list.out,
            "lenet/flatten_16_5px/forward/manual_time\nlenet/flatten_16_5px/backward/manual_time\n");
  EXPECT_THAT(list.err, IsEmpty());
  EXPECT_EQ(run({"--benchmark_list_tests", "--benchmark_filter=ops/(add_32|reshape)"}).out,
            "ops/reshape_64_32px/forward/manual_time\nops/reshape_64_32px/backward/manual_time\n"
            "ops/add_32x32x64/forward/manual_time\n");

  const ProcessResult table =
      run({"--table", "--batch-size", "1", "--benchmark_filter=conv2d_3x3_64x64_32px"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  // 2 x 32^2 x 64 x 9 x 64 operations; two feature maps of 262,144 bytes and a filter of 147,456 bytes.
  EXPECT_THAT(table.out,
              AllOf(Not(HasSubstr("| kernel |")),
                    HasSubstr("| resnet18/conv2d_3x3_64x64_32px | [1, 32, 32, 64] [64, 3, 3, 64] | 4 "
                              "| 75.50 | 0.67 | 150.99 | 1.34 |\n")));
}

TEST(BenchKernels, ReportsErrorsInOneLine) {
  const std::vector<std::pair<Arguments, std::string>> refusals = {
      {{"--batch-size", "0"}, "--batch-size: found 0, expected at least 1"},
      {{"--precision", "bf17"}, "--precision: found 'bf17'"},
      {{"--precision", "fp16", "--device", "cpu"}, "--precision fp16: the CPU supports fp64, fp32 and bf16"},
      {{"--elemnts", "1"}, "did you mean '--elements'?"},
      {{"--benchmark_filter=("}, "--benchmark_filter: found '(', expected a regular expression"},
      {{"--benchmark_filter=resnet81"}, "--benchmark_filter: found 'resnet81', which matches no row"},
      {{"--benchmark_format=xml"}, "--benchmark_format: found 'xml', expected one of console, json, csv"},
      {{"--count", "--device", "cpu"}, "--count: found --device cpu, expected cuda"},
      {{"--count", "--table"}, "found --count and --table, expected one of them"},
      {{"--benchmark_repetition=2"}, "--benchmark_repetition: unknown flag"},
  };
  for (const auto& [arguments, expected] : refusals) {
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << expected;
    EXPECT_THAT(result.err, AllOf(StartsWith("convoy-bench-kernels: error: "), HasSubstr(expected)));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace convoy::testing

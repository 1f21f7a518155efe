// Tests of convoy-bench-overhead. Times are not tested.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "bench/overhead/overhead.h"
#include "tests/testing/source_tree/source_path.h"
#include "tests/testing/support/process.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Overheads, HaveTheCasesOfPyTorch) {
  const std::string script = read_text(source_path("bench/python/pytorch_overhead.py"));
  const std::regex row("\n    \"([a-z0-9_]+)\": \\(");
  std::vector<std::string> expected, found;
  for (std::sregex_iterator at(script.begin(), script.end(), row), end; at != end; ++at)
    expected.push_back((*at)[1]);
  for (const bench::Overhead& each : bench::measure_overheads(1, 1e-5)) found.push_back(each.name);
  EXPECT_EQ(found, expected);
}

TEST(Overheads, AreWrittenAsJson) {
  const TempDirectory directory;
  const std::string file = (directory.path() / "figures.json").string();
  const auto program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "convoy-bench-overhead";
  const ProcessResult run =
      run_program({program.string(), "--rounds", "1", "--seconds", "0.0001", "--json", file});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("forward and backward"));
  const Json figures = Json::parse(read_text(file));
  for (const char* mode : {"inference_ns", "recorded_ns", "training_ns"})
    EXPECT_GT(figures.at("relu").at(mode).get<double>(), 0);
  // A backward pass has an operation of its own for each operation of the forward pass.
  EXPECT_GT(figures.at("ten_relus").at("training_ns"), figures.at("relu").at("training_ns"));
}

}  // namespace
}  // namespace convoy::testing

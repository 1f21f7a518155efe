// Tests of convoy-bench-overhead. Times are not tested.
#include <iterator>
#include <regex>

#include "tests/bench/bench_programs.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

class Overheads : public BenchProgram {
 protected:
  Overheads() : BenchProgram("convoy-bench-overhead", {"--rounds=1", "--seconds=0.0001"}) {}
};

TEST_F(Overheads, HaveTheCasesOfPyTorch) {
  std::string out;
  const Json figures = measure({}, {}, &out);
  EXPECT_THAT(out, ::testing::HasSubstr("forward and backward"));
  std::ifstream in(source_path("bench/python/pytorch_overhead.py"));
  const std::string script{std::istreambuf_iterator<char>(in), {}};
  const std::regex row("\n    \"([a-z0-9_]+)\": \\(");
  std::vector<std::string> expected, found;
  for (std::sregex_iterator at(script.begin(), script.end(), row), end; at != end; ++at)
    expected.push_back((*at)[1]);
  for (const auto& [name, times] : figures.items()) {
    found.push_back(name);
    for (const char* mode : {"inference_ns", "recorded_ns", "training_ns"})
      EXPECT_GT(times.at(mode).get<double>(), 0) << name;
  }
  EXPECT_EQ(found, expected);
  // A backward pass has an operation of its own for each operation of the forward pass.
  EXPECT_GT(figures.at("ten_relus").at("training_ns"), figures.at("relu").at("training_ns"));
}

}  // namespace
}  // namespace convoy::testing

// Ranks with a GPU each, through NCCL: convoy-train on emulated GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/apps/rank_runs.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

class GpuRanks : public ::testing::Test {
 protected:
  /// LeNet in fp64, where ranks and one process differ by rounding in the 16th digit.
  ProcessResult train(const std::string& out, int ranks, const Arguments& more = {},
                      const std::string& device = "cuda") const {
    Arguments flags = {"--device", device, "--precision", "fp64", "--batch-size", "5", "--max-steps", "4"};
    flags.insert(flags.end(), more.begin(), more.end());
    const Arguments arguments = workshop.train_arguments(out, flags);
    return ranks == 1 ? run_program(arguments) : run_by_mpi(ranks, arguments);
  }

  std::vector<double> losses_of(const std::string& out) const {
    std::vector<double> losses;
    for (const Json& step : workshop.events(out, "step")) losses.push_back(step["loss"]);
    losses.push_back(workshop.result(out)["test_loss"]);
    return losses;
  }

  void SetUp() override { write_digits(workshop.path("digits"), 15, 6); }
  Workshop workshop;
};

TEST_F(GpuRanks, TrainAsOneDoes) {
  const ProcessResult alone = train("alone", 1);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const std::vector<double> expected = losses_of("alone");
  for (const char* graph : {"--cuda-graph", "--no-cuda-graph"}) {
    const std::string out = std::string("two") + graph;
    const ProcessResult two = train(out, 2, {graph});
    ASSERT_EQ(two.exit_code, 0) << two.out << two.err;
    EXPECT_THAT(two.out, HasSubstr("2 on 1 host, nccl"));
    const std::vector<double> found = losses_of(out);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t step = 0; step < found.size(); ++step)
      EXPECT_NEAR(found[step], expected[step], 1e-9 * expected[step]) << graph << ", step " << step + 1;
    const Json start = workshop.events(out, "start").front();
    EXPECT_EQ(start["devices"], (Json{"cuda:0", "cuda:1"}));
    for (const Json& step : workshop.events(out, "step")) EXPECT_GE(step["comm_ms"].get<double>(), 0);
    EXPECT_TRUE(workshop.events(out, "warning").empty()) << workshop.events(out, "warning").front().dump();
  }
}

TEST_F(GpuRanks, MoreThanThereAreGpusAreRefused) {
  const ProcessResult result = train("run", 3);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("would share one GPU"));
  EXPECT_THAT(result.err, HasSubstr("--allow-shared-gpu"));
}

TEST_F(GpuRanks, MayShareAGpuWhereTheyAreTold) {
  const ProcessResult result = train("run", 2, {"--allow-shared-gpu"}, "cuda:0");
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

TEST_F(GpuRanks, TakeNoCommunicatorOfTheCpu) {
  const ProcessResult result = train("run", 2, {"--comm", "shm"});
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--comm shm: carries what lies in the CPU's memory"));
}

}  // namespace
}  // namespace convoy::testing

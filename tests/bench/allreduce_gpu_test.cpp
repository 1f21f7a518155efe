// Tests of convoy-bench-allreduce with NCCL on emulated GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/rank_runs.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

Arguments arguments(const Arguments& more) {
  Arguments all = {program("convoy-bench-allreduce"),
                   "-b4",
                   "-e4K",
                   "-f32",
                   "-n2",
                   "-w1",
                   "--threads=1",
                   "--collective=all_reduce,reduce_scatter,all_gather,broadcast"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void expect_right_sums(const ProcessResult& result, const char* ranks) {
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr(ranks));
  EXPECT_THAT(result.out, HasSubstr("# Out of bounds values : 0 OK"));
}

TEST(AllreduceOnGpus, RunsWithThreadsProcessesAndOneRank) {
  expect_right_sums(run_program(arguments({"--device", "cuda", "--devices", "2"})),
                    "2 on 1 host, nccl; rendezvous: 2 threads of one process");
  expect_right_sums(run_by_mpi(2, arguments({"--device", "cuda", "-d", "half", "--percentiles"})),
                    "2 on 1 host, nccl");
  expect_right_sums(run_program(arguments({"--device", "cuda:1"})), "one process, nccl");
}

TEST(AllreduceOnGpus, RejectsMpiComparison) {
  const ProcessResult result = run_by_mpi(2, arguments({"--device", "cuda", "--beside-mpi"}));
  EXPECT_EQ(result.exit_code, 2) << result.out;
  EXPECT_THAT(result.err, HasSubstr("--beside-mpi: found --device cuda:0, expected cpu"));
}

}  // namespace
}  // namespace convoy::testing

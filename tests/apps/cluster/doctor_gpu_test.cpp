// Tests of convoy-doctor on emulated GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/apps/rank_runs.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

ProcessResult examine(int ranks, const std::string& gpus, const Arguments& more = {},
                      Environment environment = {}) {
  Arguments arguments = {program("convoy-doctor"), "--comm-timeout", "60"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const TempDirectory session;
  const Environment of_mpi = mpirun_environment(session);
  environment.insert(of_mpi.begin(), of_mpi.end());
  environment["CONVOY_EMULATED_GPUS"] = gpus;
  return run_program(mpirun(ranks, arguments), {.environment = environment});
}

TEST(DoctorOnGpus, RunsCollectivesBetweenGpus) {
  const ProcessResult result = examine(2, "2");
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  for (const char* text : {"shm: all-gather [0 1]", "nccl: all-gather [0 1]", "nccl: all-reduce of 16.00 MiB",
                           "2 x Emulated GPU", "cuda:0 with", "cuda:1 with", "NCCL 2."})
    EXPECT_THAT(result.out, HasSubstr(text));
}

TEST(DoctorOnGpus, FindsRanksThatShareAGpu) {
  const ProcessResult result = examine(2, "1");
  EXPECT_EQ(result.exit_code, 7) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("ranks 0, 1 on "));
  EXPECT_THAT(result.out, HasSubstr("share 1 GPU"));
  const ProcessResult allowed = examine(2, "1", {"--allow-shared-gpu"});
  EXPECT_EQ(allowed.exit_code, 0) << allowed.out << allowed.err;
  EXPECT_THAT(allowed.out, HasSubstr("nccl: all-gather [0 1]"));
}

TEST(DoctorOnGpus, FindsMissingGpus) {
  const ProcessResult result = examine(1, "0", {"--device", "cuda"});
  EXPECT_EQ(result.exit_code, 7) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("no NVIDIA driver on this machine"));
  EXPECT_THAT(result.out, HasSubstr("fix: install the NVIDIA driver"));
}

TEST(DoctorOnGpus, FindsInvalidVisibleDevices) {
  const ProcessResult result = examine(1, "1", {}, {{"CUDA_VISIBLE_DEVICES", "0,gpu1"}});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("CUDA_VISIBLE_DEVICES has 'gpu1'"));
}

TEST(DoctorOnGpus, RefusesCpuCommunicatorForGpus) {
  const ProcessResult result = examine(2, "2", {"--device", "cuda", "--comm", "shm"});
  EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("--comm shm: supports only the CPU"));
}

}  // namespace
}  // namespace convoy::testing

// Tests of the Slurm recipes with a real Slurm cluster of this machine only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/apps/rank_runs.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(RealSlurm, StartsRanks) {
  const TempDirectory directory;
  const fs::path source = testing::source_path();
  const Environment environment = {
      {"PATH", fs::path(program("convoy-doctor")).parent_path().string() + ":" + std::getenv("PATH")},
      {"ASAN_OPTIONS", "detect_leaks=0"},
      {"SBATCH_OUTPUT", directory.path() / "batch.log"},
      {"CONVOY_OUT", directory.path() / "run"}};
  const ProcessResult result =
      run_program({"/bin/bash", source / "tests/apps/cluster/slurm_one_machine.sh", "/bin/sh", "-c",
                   "srun -n 4 convoy-doctor && sbatch --wait docs/launch/job.sbatch"},
                  {.environment = environment, .directory = source});
  if (result.exit_code == 77) GTEST_SKIP() << "needs root and slurmctld, slurmd, slurm-client and munge";
  const std::string batch = read_text(directory.path() / "batch.log");
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err << batch;
  for (const std::string& text : {result.out, batch}) {
    EXPECT_THAT(text, HasSubstr("4 ranks on 1 host; SLURM_*, tcp://"));
    int gathered = 0;
    for (std::size_t at = text.find("[0 1 2 3]"); at != std::string::npos;
         at = text.find("[0 1 2 3]", at + 1))
      ++gathered;
    EXPECT_EQ(gathered, 4) << text;
  }
  EXPECT_TRUE(fs::exists(directory.path() / "run/checkpoints")) << batch;
}

}  // namespace
}  // namespace convoy::testing

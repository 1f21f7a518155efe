// Trainings under convoy-launch --min-ranks: ranks are killed, and the others continue without a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <nlohmann/json.hpp>

#include "tests/apps/launched_training.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(Continuation, GivesTheResultOfAResumedTraining) {
  train_reference();
  for (const int rank : {3, 0}) {
    const auto step =
        kill_and_compare("killed-" + std::to_string(rank), rank, 100, {"--save-every", "1000000"});
    ASSERT_TRUE(step) << "restarted from a checkpoint";
    EXPECT_GE(*step, 99);
  }
}

/// Faults that kill rank 0 of the new group before its first step: while the others wait for its state, because it reads the
/// newest checkpoint, and once all have the state.
constexpr const char* kKillsRankZero[] = {"pread-kills", "log-kills"};

TEST_F(Continuation, SurvivesASecondFailureBeforeTheFirstStep) {
  train_reference();
  for (const char* fault : kKillsRankZero) {
    const auto step =
        kill_and_compare(std::string("run-") + fault, 3, 100, {"--save-every", "50"}, second_failure(fault));
    ASSERT_TRUE(step) << fault << ": restarted from a checkpoint";
    EXPECT_GE(*step, 99);
  }
}

TEST_F(Continuation, EndsIfTooFewRanksRemain) {
  Process job(training("run", {"--ranks", "2", "--max-restarts", "2", "--min-ranks", "2"},
                       {"--epochs", "100000", "--eval-every", "0"}));
  wait_for_step(workshop, "run", 5);
  kill_rank(1, "run");
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 137) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("rank 1 on localhost was killed by SIGKILL; fewer than --min-ranks 2 remain"));
}

TEST_F(Continuation, WorksDownToOneRank) {
  expect_one_rank_completes({"--epochs", "100", "--eval-every", "0", "--save-every", "1000000"}, 1000);
}

TEST_F(ShardedContinuation, GivesTheResultOfAResumedTraining) {
  train_reference();
  for (const int rank : {3, 0}) {
    const auto step =
        kill_and_compare("killed-" + std::to_string(rank), rank, 100, {"--save-every", "1000000"});
    ASSERT_TRUE(step) << "restarted from a checkpoint";
    EXPECT_GE(*step, 80) << "snapshots are taken every 10 steps, and two are kept";
    EXPECT_EQ(*step % 10, 0);
  }
}

TEST_F(ShardedContinuation, SurvivesASecondFailureBeforeTheFirstStep) {
  train_reference();
  for (const char* fault : kKillsRankZero) {
    const auto step =
        kill_and_compare(std::string("run-") + fault, 3, 100, {"--save-every", "50"}, second_failure(fault));
    ASSERT_TRUE(step) << fault << ": restarted from a checkpoint";
    EXPECT_GE(*step, 80);
  }
}

TEST_F(ShardedContinuation, WorksDownToOneRank) {
  Arguments flags = {"--epochs",     "60",      "--eval-every",     "0",
                     "--save-every", "1000000", "--snapshot-every", "3"};
  flags.insert(flags.end(), sharded.begin(), sharded.end());
  expect_one_rank_completes(flags, 600);
}

TEST_F(ShardedContinuation, RestartsFromTheCheckpointIfAShardAndItsCopyAreLost) {
  Arguments flags = {"--epochs", "60", "--eval-every", "0", "--save-every", "50"};
  flags.insert(flags.end(), sharded.begin(), sharded.end());
  Process job(
      training("run", {"--ranks", "4", "--max-restarts", "3", "--min-ranks", "2", "--backoff", "0"}, flags));
  wait_for_step(workshop, "run", 150);
  // Rank 1 has the copy of rank 3's shard, and rank 3 that of rank 1's.
  std::vector<pid_t> both;
  for (const char* rank : {"RANK=1", "RANK=3"})
    for (const pid_t found : find_processes(rank, workshop.path("run"))) both.push_back(found);
  ASSERT_EQ(both.size(), 2u);
  for (const pid_t process : both) kill(process, SIGKILL);
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resuming from "));
  EXPECT_EQ(workshop.events("run", "result").size(), 1u);
}

}  // namespace
}  // namespace convoy::testing

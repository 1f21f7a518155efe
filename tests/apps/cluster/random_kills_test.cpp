// Trainings under convoy-launch with kills at random moments. Labelled soak: minutes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <thread>

#include "tests/apps/launched_training.h"

namespace convoy::testing {
namespace {

class RandomKills : public Continuation {};

TEST_F(RandomKills, LetTheOtherRanksContinue) {
  train_reference();
  std::mt19937 random(1);
  int continued = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string out = "run-" + std::to_string(i);
    const auto rank = static_cast<int>(random() % static_cast<unsigned>(kRanks));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    continued += kill_and_compare(out, rank, 1 + random() % 250).has_value() ? 1 : 0;
  }
  std::printf("%d of 100 continued, the others restarted from a checkpoint\n", continued);
  EXPECT_GT(continued, 90);
}

/// The second rank dies before, while or after the others form the new group.
TEST_F(RandomKills, LetTheOtherRanksContinueTwice) {
  train_reference();
  std::mt19937 random(4);
  constexpr int kRuns = 100;
  int survived = 0, continued = 0;
  for (int i = 0; i < kRuns; ++i) {
    const std::string out = "run-" + std::to_string(i);
    Process job(
        training(out, {"--ranks", "4", "--max-restarts", "3", "--min-ranks", "2", "--backoff", "0"}, steps));
    wait_for_step(workshop, out, 1 + random() % 200);
    std::vector<pid_t> ranks = find_processes("RANK=", workshop.path(out));
    ASSERT_EQ(ranks.size(), 4u);
    std::shuffle(ranks.begin(), ranks.end(), random);
    kill(ranks[0], SIGKILL);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300'000));
    kill(ranks[1], SIGKILL);
    const ProcessResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json start = workshop.events(out, "start").back();
    EXPECT_EQ(hash_of(out), resumed_hash(start["step"], start["world_size"])) << result.err;
    survived += result.exit_code == 0 ? 1 : 0;
    continued += result.err.find("restart ") == std::string::npos ? 1 : 0;
  }
  std::printf("%d of %d jobs complete, %d of them without a restart from a checkpoint\n", survived, kRuns,
              continued);
  EXPECT_GT(continued, kRuns * 9 / 10);
}

TEST_F(ShardedContinuation, ContinuesAfterRandomKills) {
  train_reference();
  std::mt19937 random(3);
  int continued = 0;
  for (int i = 0; i < 50; ++i) {
    const auto rank = static_cast<int>(random() % static_cast<unsigned>(kRanks));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    continued += kill_and_compare("run-" + std::to_string(i), rank, 1 + random() % 250).has_value() ? 1 : 0;
  }
  std::printf("%d of 50 continued, the others restarted from a checkpoint\n", continued);
  EXPECT_GT(continued, 40);
}

/// Three failures in a row in the same step end a job, so before every second kill there is a new step.
TEST_F(RandomKills, LoseNothingThatACheckpointHas) {
  ASSERT_EQ(run_program(training("whole", {"--ranks", "2"}, steps)).exit_code, 0);
  std::mt19937 random(2);
  int kills = 0;
  for (int run = 0; kills < 200; ++run) {
    const std::string out = "run-" + std::to_string(run);
    Process job(training(out, {"--ranks", "2", "--max-restarts", "5", "--backoff", "0"}, steps));
    for (int i = 0; i < 5; ++i, ++kills) {
      const std::size_t steps_before = steps_of(workshop, out);
      while (i % 2 == 1 && job.running() && steps_of(workshop, out) <= steps_before)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      std::this_thread::sleep_for(std::chrono::milliseconds(300 + random() % 900));
      const auto found = find_processes("RANK=" + std::to_string(random() % 2), workshop.path(out));
      if (found.empty()) break;  // complete, or between two starts
      kill(found.front(), SIGKILL);
    }
    const ProcessResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(hash_of(out), hash_of("whole"));
  }
  std::printf("%d kills\n", kills);
}

}  // namespace
}  // namespace convoy::testing

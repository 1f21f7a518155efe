// Ranks that are killed at random moments, without a launcher. Labelled soak: minutes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/apps/faults/rank_job.h"

namespace convoy::testing {
namespace {

class KilledAtRandom : public RankJob, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, KilledAtRandom, ::testing::Values(2, 4, 8),
                         ::testing::PrintToStringParamName());

TEST_P(KilledAtRandom, AreNamedWithTheirSignalByAllOthers) {
  const int ranks = GetParam();
  std::mt19937 random(static_cast<unsigned>(ranks));
  for (int i = 0; i < 20; ++i) {
    processes.clear();
    std::filesystem::remove_all(workshop.path("run"));
    start(ranks, i % 2 == 0 ? "shm" : "tcp", {"--max-steps", "1000000", "--comm-timeout", "200"});
    wait_until_step(1);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300'000));
    const auto killed = static_cast<int>(random() % static_cast<unsigned>(ranks));
    SCOPED_TRACE(fmt::format("rank {} is killed", killed));
    kill(id_of(killed), SIGKILL);
    const FaultRecord record(fmt::format("a random rank of {} is killed at a random moment", ranks));
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<ProcessResult> results = wait(killed);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == killed) continue;
      const ProcessResult& result = results[static_cast<std::size_t>(rank)];
      EXPECT_EQ(result.exit_code, 4) << result.err;
      EXPECT_THAT(result.err, ::testing::HasSubstr(fmt::format("rank {} on ", killed)));
      EXPECT_THAT(result.err, ::testing::HasSubstr("was killed by signal 9 (Killed)"));
    }
    if (!HasFailure())
      record.print("all others exit with code 4 and name the rank and its signal", kLostSteps);
  }
}

}  // namespace
}  // namespace convoy::testing

// Tests of ranks that are stopped, and of those that continue, over each way to communicate.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <tuple>

#include "tests/apps/faults/rank_job.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

class StoppedRanks : public RankJob, public ::testing::WithParamInterface<std::tuple<std::string, int>> {
 protected:
  const std::string comm = std::get<0>(GetParam());
  const int ranks = std::get<1>(GetParam());
};

INSTANTIATE_TEST_SUITE_P(All, StoppedRanks,
                         ::testing::Combine(::testing::Values("shm", "tcp", "mpi"),
                                            ::testing::ValuesIn(world_sizes())),
                         [](const auto& test) {
                           return fmt::format("{}On{}", std::get<0>(test.param), std::get<1>(test.param));
                         });

/// First the last rank is stopped, then rank 0, whose agent serves the others.
TEST_P(StoppedRanks, AreNamedAndContinueWithTheSameBytes) {
  const Arguments flags = {"--epochs", "30", "--eval-every", "0", "--save-every", "0", "--deterministic"};
  const std::string expected = train_on(workshop, "whole", ranks, "shm", flags).hash;
  Arguments warned = flags;
  warned.insert(warned.end(), {"--comm-timeout", "200", "--comm-warning", "1"});
  start(ranks, comm, warned);
  std::vector<FaultRecord> records;
  for (const int rank : {ranks - 1, 0}) {
    wait_until_step(steps_of(workshop, "run") + 3);
    const pid_t id = id_of(rank);
    kill(id, SIGSTOP);
    records.emplace_back(fmt::format(
        "a rank of {} is stopped until it is named, then continued (`--comm {} --comm-warning 1`)", ranks,
        comm));
    wait_for_error(fmt::format("is stopped by a signal (process {})", id));
    EXPECT_THAT(errors(), HasSubstr("no rank has made progress for "));
    kill(id, SIGCONT);
    records.back().stop();
  }
  for (const ProcessResult& result : wait()) EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(hash_of("run"), expected) << "differs from the undisturbed training";
  EXPECT_FALSE(std::filesystem::exists(workshop.path("run") / "post-mortem"));
  for (const FaultRecord& record : records)
    if (!HasFailure())
      record.print("a warning names it; the training completes with the same bytes", "nothing");
}

TEST_P(StoppedRanks, EndTheOthersAtTheLimit) {
  start(ranks, comm, {"--max-steps", "1000000", "--comm-timeout", "3", "--comm-warning", "100"});
  wait_until_step(3);
  const pid_t id = id_of(0);
  kill(id, SIGSTOP);
  const FaultRecord record(
      fmt::format("rank 0 of {} is stopped for good (`--comm {} --comm-timeout 3`)", ranks, comm));
  const std::vector<ProcessResult> results = wait(0);
  for (std::size_t rank = results.size() > 1 ? 1 : 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].exit_code, 4) << results[rank].err;
    EXPECT_THAT(results[rank].err, HasSubstr("rank 0 on "));
    EXPECT_THAT(results[rank].err, HasSubstr("is stopped by a signal"));
    EXPECT_THAT(results[rank].err, HasSubstr("; its thread: state T, system call "));
  }
  if (!HasFailure()) record.print("all others exit with code 4 and name it", kLostSteps);
  const ProcessResult report = run_program({program("convoy-doctor"), "--post-mortem", workshop.path("run")});
  EXPECT_THAT(report.out, HasSubstr("is stopped by a signal"));
}

}  // namespace
}  // namespace convoy::testing

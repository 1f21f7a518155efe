// Tests of what a failed or slow job tells: warnings, the first cause on every rank, and the post-mortem.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/apps/fault_record.h"
#include "tests/apps/rank_runs.h"
#include "tests/apps/trace_rules.h"
#include "tests/testing/support/free_port.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A training of several processes without mpirun, whose exit codes and messages are each rank's own.
class PostMortem : public ::testing::Test {
 protected:
  void start(int ranks, const Arguments& flags) {
    const int port = free_port();
    for (int rank = 0; rank < ranks; ++rank)
      processes.push_back(
          std::make_unique<Process>(workshop.train_arguments("run", flags),
                                    ProcessOptions{.environment = rank_environment(rank, ranks, port)}));
    wait_for_step(workshop, "run", 3);
  }
  ProcessResult examine() const {
    return run_program({program("convoy-doctor"), "--post-mortem", workshop.path("run")});
  }

  Workshop workshop;
  std::vector<std::unique_ptr<Process>> processes;
};

class KilledRanks : public PostMortem, public ::testing::WithParamInterface<int> {};

TEST_P(KilledRanks, AreNamedByAllOthersAndByThePostMortem) {
  const int ranks = GetParam(), killed = ranks - 1;
  start(ranks, {"--max-steps", "1000000", "--comm-timeout", "200"});
  processes[static_cast<std::size_t>(killed)]->send(SIGKILL);
  const FaultRecord record(fmt::format("one of {} ranks is killed", ranks));
  const auto begin = std::chrono::steady_clock::now();
  const std::string name = "rank " + std::to_string(killed) + " on ";
  // The test process is the parent, which has not waited for the rank: the kernel still knows the signal.
  const auto names_cause = AllOf(HasSubstr(name), HasSubstr("was killed by signal 9 (Killed); it was "));
  for (int rank = 0; rank < killed; ++rank) {
    const ProcessResult result = processes[static_cast<std::size_t>(rank)]->wait();
    EXPECT_EQ(result.exit_code, 4) << result.err;
    EXPECT_THAT(result.err, names_cause);
  }
  if (!HasFailure())
    record.print("all others exit with code 4 and name the rank, its signal and its phase", kLostSteps);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));

  const ProcessResult report = examine();
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(report.out, HasSubstr("flight recorders of " + std::to_string(ranks) + " of " +
                                    std::to_string(ranks) + " ranks"));
  EXPECT_THAT(report.out, HasSubstr("\nverdict: " + name));
  EXPECT_THAT(report.out, names_cause);
  const std::string text = read_text(workshop.path("run") / "post-mortem" / "timeline.json");
  EXPECT_THAT(problems_of_trace(text), ::testing::IsEmpty());
  const Json timeline = Json::parse(text);
  std::set<int> rows;
  bool has_sums = false;
  for (const Json& event : timeline["traceEvents"]) {
    rows.insert(event["pid"].get<int>());
    has_sums |= event["name"].get<std::string>().starts_with("all-reduce");
  }
  EXPECT_EQ(rows.size(), static_cast<std::size_t>(ranks));
  EXPECT_TRUE(has_sums);
}

INSTANTIATE_TEST_SUITE_P(Ranks, KilledRanks, ::testing::Values(2, 4, 8), ::testing::PrintToStringParamName());

TEST_F(PostMortem, ASingleRankLeavesItsOwn) {
  const ProcessResult result =
      run_program(workshop.train_arguments("run", {"--lr", "1e300", "--schedule", "constant"}));
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(examine().out,
              AllOf(HasSubstr("flight recorders of 1 of 1 ranks"), HasSubstr("the loss of step")));
}

TEST_F(PostMortem, RejectsADirectoryWithoutFiles) {
  const ProcessResult report =
      run_program({program("convoy-doctor"), "--post-mortem", workshop.path("absent")});
  EXPECT_EQ(report.exit_code, 3) << report.out;
  EXPECT_THAT(report.err, HasSubstr("absent"));
}

}  // namespace
}  // namespace convoy::testing

// Tests of trainings of which one rank is slow, or late in a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/apps/faults/rank_job.h"
#include "tests/testing/support/free_port.h"

namespace convoy::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SlowRanks : public RankJob {
 protected:
  void start_ranks(int ranks, const Arguments& flags = {}) {
    Arguments arguments = {"--max-steps", "1000000", "--eval-every", "0", "--save-every", "1000000"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const int port = free_port();
    for (int rank = 0; rank < ranks; ++rank)
      start_rank(rank, ranks, port, workshop.train_arguments("run", arguments),
                 {.environment = {{"CONVOY_STRAGGLER_WINDOW", "6"}}});
    wait_until_step(3);
  }
  /// Returns the warnings of the log about slow ranks.
  std::vector<std::string> named() const {
    std::vector<std::string> found;
    for (const Json& event : workshop.events("run", "warning"))
      if (const std::string text = event["message"];
          text.find("slower than the other ranks") != std::string::npos)
        found.push_back(text);
    return found;
  }
};

/// Rank 2 runs for a quarter of the time: it is stopped for 60 ms of each 80 ms.
TEST_F(SlowRanks, AreNamedInTheLogOnTheTerminalAndInTheReport) {
  start_ranks(3, {"--batch-size", "320"});  // most of a step is computed, and not exchanged
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; named().empty() && std::chrono::steady_clock::now() - begin < std::chrono::seconds(120);
       ++i)
    for (int k = 0; k < 10; ++k) {
      processes[2]->send(SIGSTOP);
      std::this_thread::sleep_for(milliseconds(60));
      processes[2]->send(SIGCONT);
      std::this_thread::sleep_for(milliseconds(20));
    }
  const std::vector<std::string> texts = named();
  ASSERT_FALSE(texts.empty());
  EXPECT_THAT(texts, Each(HasSubstr("rank 2 on ")));
  EXPECT_THAT(texts.front(), HasSubstr(" % slower than the other ranks for 6 s, most of it "));
  for (const auto& process : processes) process->send(SIGTERM);
  EXPECT_THAT(wait().front().out, HasSubstr("warning: " + texts.front()));
  ASSERT_EQ(run_program({program("convoy-report"), workshop.path("run")}).exit_code, 0);
  EXPECT_THAT(read_text(workshop.path("run") / "report.html"), HasSubstr(texts.front().substr(0, 40)));
}

}  // namespace
}  // namespace convoy::testing

// Trainings on two hosts, which are network namespaces of this machine, whose link fails or is slow. Skipped if this
// process may not create them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/apps/faults/rank_job.h"
#include "tests/testing/support/two_hosts.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

/// The parameter is the number of ranks on each of two hosts.
class Links : public RankJob, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    if (!TwoHosts::missing().empty()) GTEST_SKIP() << TwoHosts::missing();
  }
  /// Starts a training on both hosts.
  void start_on_hosts(const std::string& out, const Arguments& flags) {
    const Arguments train = workshop.train_arguments(out, flags);
    processes.clear();
    for (int rank = 0; rank < ranks; ++rank) {
      Arguments command = {"/usr/sbin/ip", "netns", "exec", hosts.name(rank / GetParam())};
      command.insert(command.end(), train.begin(), train.end());
      command.insert(command.end(), {"--rendezvous", "tcp://" + hosts.address(0) + ":29500"});
      processes.push_back(std::make_unique<Process>(
          command, ProcessOptions{.environment = {{"RANK", std::to_string(rank)},
                                                  {"WORLD_SIZE", std::to_string(ranks)}}}));
    }
  }
  void expect_success() {
    for (const ProcessResult& result : wait()) ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  const int ranks = 2 * GetParam();
  TwoHosts hosts;
};

INSTANTIATE_TEST_SUITE_P(RanksOfHost, Links, ::testing::Values(1, 2), ::testing::PrintToStringParamName());

TEST_P(Links, ThatGoDownEndAllRanksWhichResumeWithTheSameBytes) {
  const Arguments flags = {"--epochs",     "30", "--eval-every",   "0", "--deterministic",
                           "--save-every", "20", "--comm-timeout", "4"};
  start_on_hosts("whole", flags);
  expect_success();

  start_on_hosts("run", flags);
  wait_until_step(50);
  hosts.disconnect();
  const FaultRecord record(
      fmt::format("the link between 2 hosts goes down, with {} ranks (`--comm-timeout 4`)", ranks));
  const std::vector<ProcessResult> results = wait();
  for (int rank = 0; rank < ranks; ++rank) {
    const ProcessResult& result = results[static_cast<std::size_t>(rank)];
    EXPECT_EQ(result.exit_code, 4) << result.err;
    const bool is_first_host = rank < GetParam();
    EXPECT_THAT(result.err, HasSubstr(is_first_host ? "(node 1)" : "(node 0)")) << "expected the other node";
  }
  if (!HasFailure()) record.print("all ranks exit with code 4 and name the other node", kLostSteps);
  EXPECT_THAT(traces.remaining(), ::testing::IsEmpty());

  hosts.connect();
  Arguments resumed = flags;
  resumed.insert(resumed.end(), {"--resume", "auto"});
  start_on_hosts("run", resumed);
  expect_success();
  EXPECT_EQ(hash_of("run"), hash_of("whole"));
}

/// The running statistics of batch norms are summed within a save, so the link often goes down in a collective of it.
TEST_P(Links, ThatGoDownWhileCheckpointsAreSavedEndAllRanks) {
  std::mt19937 random(1);
  for (int i = 0; i < 3; ++i) {
    std::filesystem::remove_all(workshop.path("run"));
    start_on_hosts("run", {"--model", "resnet20", "--image-size", "8", "--batch-size", "4", "--save-every",
                           "1", "--eval-every", "0", "--max-steps", "100000", "--comm-timeout", "3"});
    wait_until_step(3);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 100));
    hosts.disconnect();
    const auto begin = std::chrono::steady_clock::now();
    for (const ProcessResult& result : wait()) EXPECT_EQ(result.exit_code, 4) << result.err;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3 + 2 + 5));
    hosts.connect();
  }
}

/// The gradients of ResNet-20 in fp64, 2.2 MB in one bucket, need longer than the timeout for each step.
TEST_P(Links, ThatAreSlowDoNotEndTheTraining) {
  if (const std::string missing = TwoHosts::missing_for_rates(); !missing.empty()) GTEST_SKIP() << missing;
  hosts.limit_rate("10mbit");
  const auto begin = std::chrono::steady_clock::now();
  start_on_hosts("run",
                 {"--model", "resnet20", "--image-size", "8", "--precision", "fp64", "--batch-size", "4",
                  "--max-steps", "4", "--eval-every", "0", "--bucket-mb", "100", "--comm-timeout", "1"});
  expect_success();
  const std::vector<Json> steps = workshop.events("run", "step");
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_GT(steps.back()["comm_ms"].get<double>(), 1200) << "the link is not slower than the timeout";
  for (const Json& warning : workshop.events("run", "warning"))
    EXPECT_THAT(warning["message"].get<std::string>(),
                ::testing::Not(HasSubstr("no rank has made progress")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(200));
}

}  // namespace
}  // namespace convoy::testing

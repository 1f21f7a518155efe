// Tests of training on two hosts with two ranks each and real images, with and without Open MPI. The hosts
// are network namespaces of this machine. Skipped if this process may not create them, or without
// CONVOY_DATA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/apps/fault_record.h"
#include "tests/apps/rank_runs.h"
#include "tests/testing/support/free_port.h"
#include "tests/testing/support/two_hosts.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

class TwoHostTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* root = std::getenv("CONVOY_DATA");
    if (root == nullptr || !std::filesystem::is_directory(std::filesystem::path(root) / "cifar10"))
      GTEST_SKIP() << "needs CONVOY_DATA, a directory with cifar10/";
    if (!TwoHosts::missing().empty()) GTEST_SKIP() << TwoHosts::missing();
    data = (std::filesystem::path(root) / "cifar10").string();
  }

  /// Returns the arguments that train LeNet on CIFAR-10.
  Arguments arguments(const std::string& out, const std::string& max_steps = "12") const {
    return {program("convoy-train"),
            "--model",
            "lenet",
            "--dataset",
            "cifar10",
            "--data",
            data,
            "--out",
            directory.path() / out,
            "--device",
            "cpu",
            "--threads",
            "1",
            "--workers",
            "1",
            "--batch-size",
            "50",
            "--max-steps",
            max_steps,
            "--log-every",
            "1"};
  }
  std::string host(int number) const { return hosts.name(number); }

  /// Starts four ranks on two hosts, without Open MPI.
  std::vector<std::unique_ptr<Process>> start(const std::string& max_steps) const {
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      Arguments command = {"/usr/sbin/ip", "netns", "exec", host(rank / 2)};
      Arguments train = arguments("run", max_steps);
      train.insert(train.end(), {"--rendezvous", "tcp://" + hosts.address(0) + ":29500"});
      command.insert(command.end(), train.begin(), train.end());
      ranks.push_back(std::make_unique<Process>(
          command, ProcessOptions{.environment = {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "4"}}}));
    }
    return ranks;
  }
  /// Blocks until the first steps are logged.
  void wait_for_log() const {
    for (int i = 0; i < 6000 && log_of("run").size() < 5; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_GE(log_of("run").size(), 5U);
  }

  void expect_as_single_rank(const std::string& out) {
    const ProcessResult alone = run_program(arguments("alone"));
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    const std::vector<Json> expected = log_of("alone"), found = log_of(out);
    ASSERT_EQ(found.size(), expected.size());
    int losses = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(found[i]["event"], expected[i]["event"]);
      for (const char* key : {"loss", "test_loss"})
        if (expected[i].contains(key)) {
          const double loss = expected[i][key];
          EXPECT_NEAR(found[i][key].get<double>(), loss, 1e-5 * loss) << expected[i].dump();
          ++losses;
        }
      if (expected[i]["event"] == "eval") {
        EXPECT_EQ(found[i]["count"], 10000);
      }
    }
    EXPECT_EQ(losses, 12 + 2);  // 12 steps, one evaluation, one result
    EXPECT_EQ(found.front()["hosts"].size(), 2u);
    EXPECT_EQ(found.front()["world_size"], 4);
  }

  TwoHosts hosts;
  TempDirectory directory;
  std::string data;

 private:
  std::vector<Json> log_of(const std::string& out) const {
    std::vector<Json> events;
    std::istringstream lines(read_text(directory.path() / out / "log.jsonl"));
    for (std::string line; std::getline(lines, line) && !lines.eof();) events.push_back(Json::parse(line));
    return events;
  }
};

TEST_F(TwoHostTraining, WithMpi) {
  // A replacement for ssh, called with a host and a command.
  const auto agent = directory.write(
      "agent", "#!/bin/sh\nhost=$1\nshift\ncase $host in\n" + hosts.address(0) + ") name=" + host(0) +
                   " ;;\n*) name=" + host(1) + " ;;\nesac\nexec ip netns exec $name sh -c \"$*\"\n");
  ::chmod(agent.c_str(), 0755);
  Arguments command = {"/usr/sbin/ip",
                       "netns",
                       "exec",
                       host(0),
                       CONVOY_MPIRUN,
                       "--host",
                       hosts.address(0) + ":2," + hosts.address(1) + ":2"};
  const std::pair<const char*, std::string> settings[] = {{"plm_rsh_agent", agent.string()},
                                                          {"btl", "tcp,self"},
                                                          {"btl_tcp_if_include", TwoHosts::kNetwork},
                                                          {"oob_tcp_if_include", TwoHosts::kNetwork}};
  for (const auto& [name, value] : settings) command.insert(command.end(), {"--mca", name, value});
  const Arguments train = arguments("run");
  command.insert(command.end(), train.begin(), train.end());
  const TempDirectory session;
  const ProcessResult result = run_program(command, {.environment = mpirun_environment(session)});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("4 on 2 hosts, shm+mpi"));
  expect_as_single_rank("run");
}

TEST_F(TwoHostTraining, OverTcpWithoutMpi) {
  for (const auto& rank : start("12")) {
    const ProcessResult result = rank->wait();
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  }
  expect_as_single_rank("run");
}

TEST_F(TwoHostTraining, StopTogetherWhenARankOfTheOtherHostIsAskedTo) {
  const auto ranks = start("1000000");
  wait_for_log();
  ranks[3]->send(SIGTERM);
  const FaultRecord record("a rank of another host gets SIGTERM");
  for (const auto& rank : ranks) {
    const ProcessResult result = rank->wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.out << result.err;
  }
  if (!HasFailure()) record.print("all ranks save after the same step and exit with code 143", "nothing");
}

TEST_F(TwoHostTraining, NameTheRankOfTheOtherHostThatWasKilled) {
  for (const std::size_t killed : {2U, 3U}) {  // the one that has the agent of its host, and the other one
    const auto ranks = start("1000000");
    wait_for_log();
    ranks[killed]->send(SIGKILL);
    const FaultRecord record("a rank of another host is killed");
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t rank = 0; rank < 4; ++rank) {
      if (rank == killed) continue;
      const ProcessResult result = ranks[rank]->wait();
      EXPECT_EQ(result.exit_code, 4) << result.err;
      EXPECT_THAT(result.err, HasSubstr("rank " + std::to_string(killed) + " on ")) << "rank " << rank;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    if (!HasFailure()) record.print("all others, on both hosts, exit with code 4 and name it", kLostSteps);
    std::filesystem::remove_all(directory.path() / "run");
  }
}

/// Containers with the host's network, such as Kubernetes pods with hostNetwork, have PIDs of their own.
TEST(Containers, TrainWithTheNetworkOfTheHost) {
  const Arguments container = {"/usr/bin/unshare", "--pid", "--mount-proc", "--fork", "--kill-child"};
  Arguments probe = container;
  probe.push_back("/bin/true");
  if (run_program(probe).exit_code != 0) GTEST_SKIP() << "needs the permission to create PID namespaces";
  const Workshop workshop;
  const Arguments training = workshop.train_arguments("two", {"--max-steps", "4", "--comm-timeout", "20"});
  const int port = free_port();
  Arguments inside = container;
  inside.insert(inside.end(), training.begin(), training.end());
  Process first(training, {.environment = rank_environment(0, 2, port)});
  Process second(inside, {.environment = rank_environment(1, 2, port)});
  const ProcessResult result = first.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err << second.wait().err;
  EXPECT_THAT(result.out, HasSubstr("2 on 2 hosts, "));
}

}  // namespace
}  // namespace convoy::testing

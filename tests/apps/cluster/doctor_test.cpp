// Tests of the program convoy-doctor on real faults, such as limits, CPU binding and network namespaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/apps/rank_runs.h"
#include "tests/testing/support/free_port.h"
#include "tests/testing/support/two_hosts.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::vector<int> my_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  return cores;
}

class Doctor : public ::testing::Test {
 protected:
  /// Returns the arguments of convoy-doctor on the CPU, since these tests are about hosts and networks.
  Arguments doctor(const Arguments& more = {}) const {
    const auto has = [&](const char* flag) {
      return std::find(more.begin(), more.end(), flag) != more.end();
    };
    Arguments arguments = {program("convoy-doctor"), "--device", "cpu"};
    if (!has("--comm-timeout")) arguments.insert(arguments.end(), {"--comm-timeout", "60"});
    if (!has("--json")) arguments.insert(arguments.end(), {"--json", directory.path() / "doctor.json"});
    return joined(arguments, more);
  }
  static Arguments joined(Arguments first, const Arguments& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }

  /// Runs one command per rank with a rendezvous at a free port. Each rank may have additional variables.
  std::vector<ProcessResult> run_ranks(const std::vector<Arguments>& commands,
                                       const std::vector<Environment>& variables = {}) const {
    const int port = free_port();
    std::vector<std::unique_ptr<Process>> processes;
    for (std::size_t rank = 0; rank < commands.size(); ++rank) {
      Environment environment =
          rank_environment(static_cast<int>(rank), static_cast<int>(commands.size()), port);
      environment["ASAN_OPTIONS"] = "detect_leaks=0";
      if (rank < variables.size()) environment.insert(variables[rank].begin(), variables[rank].end());
      processes.push_back(
          std::make_unique<Process>(commands[rank], ProcessOptions{.environment = environment}));
    }
    std::vector<ProcessResult> results;
    for (const auto& process : processes) results.push_back(process->wait());
    return results;
  }

  Json json() const { return Json::parse(read_text(directory.path() / "doctor.json")); }
  /// Runs two processes that both believe to be rank 0. Both write a report; that of the second one goes to
  /// another directory.
  ProcessResult run_two_alone(const Arguments& environment) const {
    const char* const script =
        "cd \"$0\"; [ \"$OMPI_COMM_WORLD_RANK\" = 0 ] || cd \"$(mktemp -d -p .)\"; exec \"$@\"";
    const Arguments apart = joined({"/bin/sh", "-c", script, directory.path()}, environment);
    return run_by_mpi(2, joined(apart, doctor({"--json", "doctor.json"})));
  }
  /// Returns the findings of the report as "grade: problem | fix".
  std::vector<std::string> findings() const {
    std::vector<std::string> texts;
    const Json all = json();
    for (const Json& finding : all["findings"])
      texts.push_back(finding["grade"].get<std::string>() + ": " + finding["found"].get<std::string>() +
                      " | " + finding["fix"].get<std::string>());
    return texts;
  }

  TempDirectory directory;
};

TEST_F(Doctor, GathersTheSameValuesOnAllRanksUnderMpirun) {
  const ProcessResult result = run_by_mpi(4, doctor());
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(count_of(result.out, "all-gather [0 1 2 3]\n"), 4) << result.out;
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(result.out, HasSubstr("\nrank " + std::to_string(rank) + " on "));
  EXPECT_THAT(result.out, HasSubstr("all sums correct on all ranks"));
  const Json all = json();
  EXPECT_EQ(all["schema"], 1);
  EXPECT_EQ(all["world_size"], 4);
  ASSERT_EQ(all["ranks"].size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    const Json& facts = all["ranks"][static_cast<std::size_t>(rank)];
    EXPECT_EQ(facts["rank"], rank);
    EXPECT_EQ(facts["met_by"], "mpi");
    EXPECT_EQ(facts["cpu"]["cores"].get<std::vector<int>>(), my_cores());
    EXPECT_GT(facts["cpu"]["memory_bytes"].get<double>(), 0);
    EXPECT_THAT(facts["libraries"].get<std::vector<std::string>>(), Contains(HasSubstr("oneDNN ")));
    EXPECT_THAT(facts["libraries"].get<std::vector<std::string>>(), Contains(HasSubstr("MPI")));
    EXPECT_THAT(facts["interface_names"].get<std::vector<std::string>>(), Contains("lo"));
  }
  ASSERT_EQ(all["collectives"].size(), 4u);
  EXPECT_EQ(all["collectives"][3]["name"], "shm");
  EXPECT_EQ(all["collectives"][3]["wrong"], 0);
  EXPECT_GT(all["collectives"][3]["bus_bandwidth"].get<double>(), 0);
}

TEST_F(Doctor, EveryProcessPrintsItsResultWithoutMpirun) {
  const std::vector<ProcessResult> results =
      run_ranks({doctor({"--comm", "tcp"}), doctor({"--comm", "tcp"})});
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(count_of(result.out, "tcp: all-gather [0 1]\n"), 1) << result.out;
  }
  EXPECT_EQ(results[1].out.find("host 0"), std::string::npos) << "only rank 0 prints all facts";
}

TEST_F(Doctor, RunsWithoutALauncher) {
  const ProcessResult result = run_program(doctor());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("all-gather [0]"));
}

TEST_F(Doctor, RefusesInvalidOptions) {
  const ProcessResult unknown = run_program({program("convoy-doctor"), "--jason", "x"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--json"));
  const ProcessResult nowhere = run_program(doctor({"--json", "/nowhere/doctor.json"}));
  EXPECT_EQ(nowhere.exit_code, 8) << nowhere.err;
  const std::vector<ProcessResult> differ = run_ranks({doctor(), doctor({"--comm", "tcp"})});
  for (const ProcessResult& result : differ) {
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("rank 1 has --device cpu --comm tcp"));
  }
}

TEST_F(Doctor, FindsRanksBoundToOneCore) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) GTEST_SKIP() << "needs two cores";
  const std::string core = std::to_string(my_cores().front());
  const Arguments bound = joined({"/usr/bin/taskset", "-c", core}, doctor());
  const std::vector<ProcessResult> results = run_ranks({bound, bound});
  EXPECT_EQ(results[0].exit_code, 0) << results[0].err;
  EXPECT_THAT(findings(), Contains(HasSubstr("ranks 0, 1 on ")));
  EXPECT_THAT(findings(), Contains(HasSubstr("may run only on core " + core + " of ")));
}

TEST_F(Doctor, FindsMoreRanksThanCores) {
  const int ranks = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) + 1;
  if (ranks > 9) GTEST_SKIP() << "needs a machine of at most eight cores";
  run_by_mpi(ranks, doctor());
  EXPECT_THAT(findings(), Contains(HasSubstr("warning: " + std::to_string(ranks) + " ranks on ")));
}

TEST_F(Doctor, FindsALowLimitOfOpenFiles) {
  const Arguments limited = joined({"/bin/sh", "-c", "ulimit -n 70; exec \"$@\"", "sh"}, doctor());
  run_ranks({limited, doctor()});
  EXPECT_THAT(findings(), Contains(HasSubstr("may open 70 files (ulimit -n) | ulimit -n 4096")));
}

TEST_F(Doctor, AcceptsAnOuterLauncherWithOneRank) {
  const ProcessResult result = run_two_alone({"/usr/bin/env", "RANK=0", "WORLD_SIZE=1"});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("2 ranks on 1 host; OMPI_COMM_WORLD_*, MPI; RANK and WORLD_SIZE too"));
  EXPECT_THAT(findings(), Not(Contains(HasSubstr("WORLD_SIZE is 1"))));
}

TEST_F(Doctor, FindsSeparateRanks) {
  const ProcessResult result =
      run_two_alone({"/usr/bin/env", "-u", "OMPI_COMM_WORLD_RANK", "RANK=0", "WORLD_SIZE=1"});
  EXPECT_EQ(result.exit_code, 4) << result.out;
  EXPECT_THAT(findings(),
              Contains(HasSubstr("has world size 1 (RANK and WORLD_SIZE; OMPI_COMM_WORLD_* too), but "
                                 "OMPI_COMM_WORLD_SIZE is 2 | unset RANK WORLD_SIZE")));
}

TEST_F(Doctor, FindsALauncherThatSetsNoVariables) {
  Arguments command = {"/usr/bin/env"};
  for (const char* name : {"RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"})
    command.insert(command.end(), {"-u", std::string("OMPI_COMM_WORLD_") + name});
  const ProcessResult result = run_two_alone(command);
  EXPECT_EQ(result.exit_code, 4) << result.out;
  EXPECT_THAT(findings(), Contains(HasSubstr("without a rank or a world size")));
}

TEST_F(Doctor, FindsContradictingWorldSizes) {
  const Environment other = {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "3"}};
  run_ranks({doctor(), doctor()}, {other, other});
  EXPECT_THAT(findings(), Contains(HasSubstr("the world size is 2")));
  EXPECT_THAT(findings(), Contains(HasSubstr("but OMPI_COMM_WORLD_SIZE is 3")));
}

TEST_F(Doctor, FindsADifferentExecutable) {
  const std::filesystem::path copy = directory.path() / "convoy-doctor";
  std::filesystem::copy_file(program("convoy-doctor"), copy);
  std::ofstream(copy, std::ios::app | std::ios::binary) << '!';
  Arguments other = doctor();
  other[0] = copy;
  run_ranks({doctor(), other});
  EXPECT_THAT(findings(), Contains(HasSubstr("warning: rank 1 on ")));
  EXPECT_THAT(findings(), Contains(HasSubstr("runs a different executable than rank 0")));
}

TEST_F(Doctor, FindsAnInterfaceThatDoesNotExist) {
  const Environment set = {{"NCCL_SOCKET_IFNAME", "nosuch"}, {"CONVOY_INTERFACE", "nosuch"}};
  run_ranks({doctor(), doctor()}, {set, set});
  EXPECT_THAT(findings(), Contains(HasSubstr("NCCL_SOCKET_IFNAME=nosuch names no interface")));
  EXPECT_THAT(findings(), Contains(HasSubstr("CONVOY_INTERFACE=nosuch names no interface")));
}

TEST_F(Doctor, NamesTheMissingRank) {
  Environment environment = rank_environment(0, 2, free_port());
  const ProcessResult first = run_program(doctor({"--comm-timeout", "1"}), {.environment = environment});
  EXPECT_EQ(first.exit_code, 4) << first.err;
  EXPECT_THAT(first.err, HasSubstr("rank 0 has joined, rank 1 is missing"));
  environment["MASTER_ADDR"] = "203.0.113.7";  // reserved for documentation
  const ProcessResult elsewhere = run_program(doctor({"--comm-timeout", "1"}), {.environment = environment});
  EXPECT_EQ(elsewhere.exit_code, 4) << elsewhere.err;
  EXPECT_THAT(elsewhere.err, HasSubstr("MASTER_ADDR=203.0.113.7 is not an address of this host"));
  const ProcessResult second =
      run_program(doctor({"--comm-timeout", "1"}), {.environment = rank_environment(1, 2, free_port())});
  EXPECT_EQ(second.exit_code, 4) << second.err;
  EXPECT_THAT(second.err, HasSubstr("rank 1 waited 1 s for rank 0"));
  EXPECT_THAT(second.err, HasSubstr("MASTER_ADDR=127.0.0.1 is a loopback address"));
}

TEST_F(Doctor, FindsContainersOfOneMachine) {
  const Arguments container = {"/usr/bin/unshare", "--pid", "--fork", "--mount-proc"};
  if (run_program(joined(container, {"/bin/true"})).exit_code != 0)
    GTEST_SKIP() << "needs the permission to create PID namespaces";
  const Arguments apart = joined(container, doctor());
  for (const ProcessResult& result : run_ranks({doctor(), apart}))
    EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(findings(), Contains(AllOf(HasSubstr("warning: hosts 0 and 1 are containers of one machine"),
                                         HasSubstr("shareProcessNamespace: true"))));
}

TEST_F(Doctor, FindsATinyDevShm) {
  if (!may_mount()) GTEST_SKIP() << kNeedsMount;
  // Large enough for Open MPI to start, but smaller than recommended.
  const Arguments tiny = {"/usr/bin/unshare",
                          "--mount",
                          "/bin/sh",
                          "-c",
                          "mount -t tmpfs -o size=12m tmpfs /dev/shm && exec \"$@\"",
                          "sh"};
  const TempDirectory session;
  const ProcessResult result =
      run_program(joined(tiny, mpirun(2, doctor())), {.environment = mpirun_environment(session)});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(findings(), Contains(HasSubstr("warning: /dev/shm of ")));
  EXPECT_THAT(findings(), Contains(HasSubstr("docker run --shm-size")));
}

TEST_F(Doctor, FindsAnUnreachableInterfaceBetweenTwoHosts) {
  const TwoHosts hosts;
  if (!TwoHosts::missing().empty()) GTEST_SKIP() << TwoHosts::missing();
  // An interface that exists only on the second host, like a container bridge.
  for (const Arguments& ip : {Arguments{"link", "add", "lonely", "type", "veth", "peer", "name", "only"},
                              Arguments{"addr", "add", "10.214.78.1/24", "dev", "lonely"},
                              Arguments{"link", "set", "lonely", "up"}})
    ASSERT_EQ(run_program(joined({"/usr/sbin/ip", "-n", hosts.name(1)}, ip)).exit_code, 0);
  std::vector<Arguments> commands;
  for (int rank = 0; rank < 3; ++rank)
    commands.push_back(joined({"/usr/sbin/ip", "netns", "exec", hosts.name(rank / 2)}, doctor()));
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    Environment environment = rank_environment(rank, 3, 29517);
    environment["MASTER_ADDR"] = hosts.address(0);
    ranks.push_back(std::make_unique<Process>(commands[static_cast<std::size_t>(rank)],
                                              ProcessOptions{.environment = environment}));
  }
  for (const auto& rank : ranks) {
    const ProcessResult result = rank->wait();
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("shm+tcp: all-gather [0 1 2]"));
  }
  EXPECT_THAT(findings(), Contains(HasSubstr("through its interface lonely (10.214.78.1)")));
  EXPECT_THAT(
      findings(),
      Contains(HasSubstr("NCCL_SOCKET_IFNAME=cable; mpirun --mca btl_tcp_if_include 10.213.77.0/24")));
  EXPECT_THAT(findings(), Contains(HasSubstr("hosts 0 and 1 are containers of one machine")));
  int reached = 0;
  const Json all = json();
  for (const Json& link : all["links"]) reached += link["error"] == "" ? 1 : 0;
  EXPECT_EQ(reached, 2) << "both hosts through the cable: " << all["links"].dump(2);
  EXPECT_EQ(all["links"].size(), 3u);
}

}  // namespace
}  // namespace convoy::testing

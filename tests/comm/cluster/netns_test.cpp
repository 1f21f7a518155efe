// Tests with two hosts, simulated by network namespaces: TCP and MPI. Skipped if this process may not
// create network namespaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "convoy/comm/cluster/hierarchical/hierarchical_communicator.h"
#include "convoy/comm/cluster/tcp/tcp_communicator.h"
#include "convoy/kernels/base/error.h"
#include "tests/comm/device_values.h"
#include "tests/comm/rendezvous_ranks.h"
#include "tests/comm/transport/conformance.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/mpirun.h"
#include "tests/testing/support/notice.h"
#include "tests/testing/support/process.h"
#include "tests/testing/support/rank_processes.h"
#include "tests/testing/support/temp_directory.h"
#include "tests/testing/support/two_hosts.h"

namespace convoy::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

class Hosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TwoHosts::missing().empty()) GTEST_SKIP() << TwoHosts::missing();
  }

  /// Runs `body` on the ranks of both hosts. With two on each, ranks 0 and 1 are on the first host.
  void run(const std::string& where, const std::function<void(dist::Rendezvous&)>& body,
           const std::function<void(const std::vector<pid_t>&)>& in_parent = nullptr, int per_host = 2) {
    run_forked_ranks(
        2 * per_host,
        [&](const ForkedRank& rank) {
          hosts.enter(rank.rank / per_host);
          set_launch(rank.rank, rank.size);
          const auto rendezvous = init_rendezvous(where, 40);
          body(*rendezvous);
          rank.wait_for_peers();
        },
        in_parent);
  }

  std::string tcp() const { return "tcp://" + hosts.address(0) + ":29500"; }

  TwoHosts hosts;
};

void expect_two_hosts(const dist::Rendezvous& rendezvous) {
  const dist::RankInfo& info = rendezvous.info();
  EXPECT_EQ(info.nodes, 2);
  EXPECT_EQ(info.node, info.rank / 2);
  EXPECT_EQ(info.local_rank, info.rank % 2);
  EXPECT_EQ(info.local_world_size, 2);
  EXPECT_THAT(info.host, HasSubstr(info.rank < 2 ? "(node 0)" : "(node 1)"));  // the hosts have the same name
}

TEST_F(Hosts, InitializeThroughTcp) {
  run(tcp(), [&](dist::Rendezvous& rendezvous) {
    expect_two_hosts(rendezvous);
    EXPECT_EQ(rendezvous.info().address, hosts.address(rendezvous.info().node));
    for (int round = 0; round < 20; ++round)
      EXPECT_EQ(rendezvous.all_gather(std::to_string(rendezvous.info().rank)),
                (std::vector<std::string>{"0", "1", "2", "3"}));
  });
}

/// Returns how many segments of TCP the host of this process has sent.
std::uint64_t sent_segments() {
  std::ifstream file("/proc/self/net/snmp");
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    if (fields.front() != "Tcp:") continue;
    if (names.empty()) {
      names = fields;
      continue;
    }
    return std::stoull(fields[static_cast<std::size_t>(std::ranges::find(names, "OutSegs") - names.begin())]);
  }
  throw std::runtime_error("found no Tcp in /proc/self/net/snmp");
}

/// An exchange costs each rank a fixed number of messages.
TEST_F(Hosts, SendMessagesInProportionToTheRanks) {
  constexpr int kExchanges = 20;
  const TempDirectory directory;
  const auto segments = [&](int per_host) {
    const auto file = directory.path() / std::to_string(per_host);
    run(
        tcp(),
        [&](dist::Rendezvous& rendezvous) {
          rendezvous.barrier();
          const std::uint64_t before = sent_segments();
          for (int round = 0; round < kExchanges; ++round)
            EXPECT_EQ(rendezvous.all_gather("x").size(), static_cast<std::size_t>(2 * per_host));
          if (rendezvous.info().rank == 0) std::ofstream(file) << sent_segments() - before;
        },
        nullptr, per_host);
    double count = 0;
    std::ifstream(file) >> count;
    return count / kExchanges;
  };
  const double of_16 = segments(8), of_32 = segments(16);
  EXPECT_GE(of_16, 16);
  EXPECT_LT(of_32 / of_16, 2.2) << of_16 << " and " << of_32 << " segments an exchange";
  EXPECT_LT(of_32, 8 * 32) << "two requests and their replies for each rank, and some acknowledgements";
}

TEST_F(Hosts, InitializeThroughSharedFile) {
  const TempDirectory directory;
  run("file://" + (directory.path() / "rendezvous").string(),
      [](dist::Rendezvous& rendezvous) { expect_two_hosts(rendezvous); });
}

TEST_F(Hosts, ReportUnreachableRanks) {
  hosts.disconnect();
  run_forked_ranks(2, [&](const ForkedRank& rank) {
    hosts.enter(rank.rank);
    set_launch(rank.rank, rank.size);
    const std::string error = message_of<PeerError>([&] { init_rendezvous(tcp(), 1); });
    EXPECT_THAT(error, HasSubstr(rank.rank == 0 ? "rank 0 has joined, rank 1 is missing"
                                                : "rank 1 waited 1 s for rank 0 at tcp://10.213.77.1:29500"));
  });
}

TEST_F(Hosts, ConformByTcp) {
  run(tcp(), [&](dist::Rendezvous& rendezvous) {
    for (const auto cases : {result_cases(), departure_cases()})
      run_cases(
          cases, 4,
          [&](const dist::CommOptions& options) { return dist::make_tcp_communicator(rendezvous, options); },
          [&] { rendezvous.barrier(); });
  });
}

TEST_F(Hosts, ConformBySharedMemoryAndTcp) {
  run(tcp(), [&](dist::Rendezvous& rendezvous) {
    for (const auto cases : {result_cases_of_any_order(), departure_cases()})
      run_cases(
          cases, 4,
          [&](const dist::CommOptions& options) {
            return dist::make_hierarchical_communicator(rendezvous, {.comm = options});
          },
          [&] { rendezvous.barrier(); });
  });
}

const auto case_name = [](const auto& what) { return std::string(what.param.name); };

TEST_F(Hosts, SumWithinHostsFirst) {
  run(tcp(), [&](dist::Rendezvous& rendezvous) {
    const auto comm = dist::make_hierarchical_communicator(rendezvous);
    EXPECT_EQ(comm->name(), "shm+tcp");
    expect_sums_by_host(*comm, {0, 0, 1, 1});
    comm->finish();
  });
}

TEST_F(Hosts, FailTogetherWithSharedFile) {
  const TempDirectory directory;
  const auto begin = std::chrono::steady_clock::now();
  run_forked_ranks(2, [&](const ForkedRank& rank) {
    hosts.enter(rank.rank);
    set_launch(rank.rank, rank.size);
    if (rank.rank == 1) setenv("CONVOY_INTERFACE", "no-such-interface", 1);
    try {
      const auto rendezvous = init_rendezvous("file://" + (directory.path() / "rendezvous").string());
      dist::make_tcp_communicator(*rendezvous);
      ADD_FAILURE() << "created without rank 1";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr(rank.rank == 1 ? "no-such-interface" : "rank 1 exited before finishing"));
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));  // less than the timeout
}

/// Returns the addresses at which sockets of this network namespace listen, as /proc/net/tcp writes them.
std::set<std::string> listening_addresses() {
  std::set<std::string> addresses;
  for (const char* path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream table(path);
    std::string line;
    std::getline(table, line);  // the header
    while (std::getline(table, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      if (state == "0A") addresses.insert(local.substr(0, local.find(':')));
    }
  }
  return addresses;
}

/// Expects that this host listens at 10.213.77.1 or 10.213.77.2 alone. Collective call.
void expect_to_listen_between_hosts(dist::Rendezvous& rendezvous) {
  const std::string in_byte_order = rendezvous.info().node == 0 ? "014DD50A" : "024DD50A";
  EXPECT_EQ(listening_addresses(), std::set<std::string>{in_byte_order});
  rendezvous.barrier();
}

TEST_F(Hosts, ListenOnTheChosenInterfaceAlone) {
  const TempDirectory directory;
  setenv("CONVOY_INTERFACE", "cable", 1);
  run("file://" + (directory.path() / "rendezvous").string(), [](dist::Rendezvous& rendezvous) {
    const auto comm = dist::make_tcp_communicator(rendezvous);
    comm->barrier();
    expect_to_listen_between_hosts(rendezvous);
    comm->finish();
  });
  unsetenv("CONVOY_INTERFACE");
}

TEST_F(Hosts, ListenWhereTheyReachRank0) {
  run(tcp(), [](dist::Rendezvous& rendezvous) {
    const auto comm = dist::make_tcp_communicator(rendezvous);
    comm->barrier();
    expect_to_listen_between_hosts(rendezvous);
    comm->finish();
  });
}

/// A process of another host without the secret cannot take the place of a missing rank.
TEST_F(Hosts, RefuseAnImpostor) {
  run_forked_ranks(2, [&](const ForkedRank& rank) {
    hosts.enter(rank.rank);
    set_launch(rank.rank, rank.size);
    setenv("CONVOY_SECRET", rank.rank == 0 ? "the secret of the job" : "a guess of the secret", 1);
    const std::string error = message_of<PeerError>([&] { init_rendezvous(tcp(), 3); });
    EXPECT_THAT(error, HasSubstr(rank.rank == 0 ? "rank 0 has joined, rank 1 is missing"
                                                : "rank 0 there has another CONVOY_SECRET"));
    rank.wait_for_peers();
  });
}

/// A backend between hosts, and the number of ranks on each of the two hosts.
struct Backend {
  const char* name;
  bool is_hierarchical;
  int per_host;

  std::unique_ptr<dist::Communicator> make(dist::Rendezvous& rendezvous, double timeout_seconds) const {
    const dist::CommOptions options{.timeout_seconds = timeout_seconds};
    return is_hierarchical ? dist::make_hierarchical_communicator(rendezvous, {.comm = options})
                           : dist::make_tcp_communicator(rendezvous, options);
  }
};
void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }
constexpr Backend kBackends[] = {{"TcpOnTwoRanks", false, 1},
                                 {"TcpOnFourRanks", false, 2},
                                 {"HierarchicalOnTwoRanks", true, 1},
                                 {"HierarchicalOnFourRanks", true, 2}};

class BackendHosts : public Hosts, public ::testing::WithParamInterface<Backend> {
 protected:
  void run_backend(const std::function<void(dist::Rendezvous&)>& body,
                   const std::function<void(const std::vector<pid_t>&)>& in_parent = nullptr) {
    run(tcp(), body, in_parent, GetParam().per_host);
  }
};

INSTANTIATE_TEST_SUITE_P(All, BackendHosts, ::testing::ValuesIn(kBackends), case_name);

/// The cable is pulled before a barrier, and in the middle of an all-reduce of 64 MiB.
TEST_P(BackendHosts, NameTheOtherHostsRanksWhenTheCableIsPulled) {
  const int ranks = 2 * GetParam().per_host;
  for (const bool is_amid_data : {false, true}) {
    const Notice connected, pulled;
    run_backend(
        [&](dist::Rendezvous& rendezvous) {
          const auto comm = GetParam().make(rendezvous, 2);
          comm->barrier();
          connected.notify();
          std::string error;
          if (is_amid_data) {
            std::vector<float> values(std::size_t{16} << 20);
            error = message_of<PeerError>([&] {
              while (true) {
                comm->all_reduce({values.data(), {std::int64_t{16} << 20}, DType::f32});
                comm->barrier();  // waits for the all-reduce
              }
            });
            EXPECT_THAT(error, ContainsRegex("all-reduce|barrier"));
          } else {
            ASSERT_TRUE(pulled.await());
            error = message_of<PeerError>([&] { comm->barrier(); });
          }
          const bool is_first_host = rendezvous.info().node == 0;
          if (ranks == 2) {
            EXPECT_THAT(error, HasSubstr(is_first_host ? "for rank 1" : "for rank 0"));
          } else if (is_amid_data) {
            // One of them may have sent all that this rank needs of it. The rank of the same host may be a
            // message behind, and wait for them too.
            EXPECT_THAT(error, ContainsRegex(is_first_host ? "for ranks? ([01], )?(2|3|2, 3)$"
                                                           : "for ranks? (0|1|0, 1)(, [23])?$"));
          } else {
            // With several ranks on each host, a rank waits for that with its own local rank.
            EXPECT_THAT(error,
                        ContainsRegex(is_first_host ? "for ranks? (2|3|2, 3)$" : "for ranks? (0|1|0, 1)$"));
          }
        },
        [&](const std::vector<pid_t>&) {
          EXPECT_TRUE(connected.await(ranks));
          if (is_amid_data) std::this_thread::sleep_for(std::chrono::milliseconds(300));
          hosts.disconnect();
          pulled.notify(ranks);
        });
    hosts.connect();
  }
}

/// All-reduces of more data than 10 Mbit/s carry within the timeout. What arrives counts as progress.
TEST_P(BackendHosts, FinishOverASlowLinkThoughASumTakesLongerThanTheTimeout) {
  if (const std::string missing = TwoHosts::missing_for_rates(); !missing.empty()) GTEST_SKIP() << missing;
  hosts.limit_rate("10mbit");
  run_backend([&](dist::Rendezvous& rendezvous) {
    const auto comm = GetParam().make(rendezvous, 2);
    comm->barrier();
    constexpr std::int64_t kElements = std::int64_t{1} << 20;  // 4 MiB: 3.4 s
    DeviceValues<float> data(*comm, std::vector<float>(kElements, 1.0F));
    const auto begin = std::chrono::steady_clock::now();
    comm->all_reduce(data.view());
    EXPECT_EQ(data.read(*comm)[kElements - 1], static_cast<float>(comm->size()));
    EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2500));
    comm->finish();
  });
}

/// Starts MPI ranks on both hosts.
class MpiHosts : public Hosts {
 protected:
  /// Returns the mpirun command for two ranks on each host.
  Arguments mpirun(const Arguments& program) {
    // Replaces ssh: a script that gets a host and a command.
    const auto agent = directory.write(
        "agent", "#!/bin/sh\nhost=$1\nshift\ncase $host in\n" + hosts.address(0) + ") name=" + hosts.name(0) +
                     " ;;\n*) name=" + hosts.name(1) + " ;;\nesac\nexec ip netns exec $name sh -c \"$*\"\n");
    chmod(agent.c_str(), 0755);
    Arguments command = {"/usr/sbin/ip", "netns", "exec", hosts.name(0), CONVOY_MPIRUN};
    command.insert(command.end(), {"--host", hosts.address(0) + ":2," + hosts.address(1) + ":2"});
    command.insert(command.end(), {"--mca", "plm_rsh_agent", agent.string(), "--mca", "btl", "tcp,self"});
    for (const char* layer : {"btl_tcp_if_include", "oob_tcp_if_include"})
      command.insert(command.end(), {"--mca", layer, TwoHosts::kNetwork});
    command.insert(command.end(), {"-x", "CONVOY_TEST_NODES", "-x", "ASAN_OPTIONS"});
    command.insert(command.end(), program.begin(), program.end());
    return command;
  }

  std::map<std::string, std::string> environment() const {
    std::map<std::string, std::string> variables = mpirun_environment(directory);
    variables["CONVOY_TEST_NODES"] = "2";
    return variables;
  }

  const TempDirectory directory;
};

TEST_F(MpiHosts, Conform) {
  const ProcessResult result = run_program(mpirun({CONVOY_MPI_RANKS}), {.environment = environment()});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("PASSED"));
}

TEST_F(MpiHosts, FinishOverASlowLinkThoughASumTakesLongerThanTheTimeout) {
  if (const std::string missing = TwoHosts::missing_for_rates(); !missing.empty()) GTEST_SKIP() << missing;
  hosts.limit_rate("10mbit");
  const ProcessResult result =
      run_program(mpirun({CONVOY_MPI_RANKS, "--fault=slow_link"}), {.environment = environment()});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

/// Without the network, mpirun itself loses the second host. The ranks of the first one must end by
/// themselves.
TEST_F(MpiHosts, EndWhenTheCableIsPulledAmidAnAllReduce) {
  Process job(mpirun({CONVOY_MPI_RANKS, "--fault=endless"}), {.environment = environment()});
  const std::filesystem::path started = directory.path() / "started";
  for (int tries = 0; !std::filesystem::exists(started) && tries < 3000; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(std::filesystem::exists(started)) << job.wait(std::chrono::seconds(1)).err;
  hosts.disconnect();
  const ProcessResult result = job.wait(std::chrono::seconds(8));
  EXPECT_THAT(result.err, ::testing::ContainsRegex("rank [01]: all-reduce [0-9]+ \\(16777216 f32\\) on rank "
                                                   "[01] of 4 \\(mpi\\): rank [01] waited 2 s for "));
}

}  // namespace
}  // namespace convoy::testing

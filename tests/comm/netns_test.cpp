// Ranks of two hosts: by TCP and gloo, and by MPI. Skipped, visibly, where this process may not make network
// namespaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>

#include "comm/gloo_communicator.h"
#include "comm/hierarchical_communicator.h"
#include "kernels/runtime/error.h"
#include "tests/comm/conformance.h"
#include "tests/comm/device_values.h"
#include "tests/comm/meeting_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/mpirun.h"
#include "tests/support/notice.h"
#include "tests/support/process.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temp_folder.h"
#include "tests/support/two_hosts.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

class Hosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hosts.why_not().empty()) GTEST_SKIP() << hosts.why_not();
  }

  /// Ranks 0 and 1 on the first host, 2 and 3 on the second.
  void run(const std::string& where, const std::function<void(Rendezvous&)>& body,
           const std::function<void(const std::vector<pid_t>&)>& beside = nullptr) {
    run_forked_ranks(
        4,
        [&](const ForkedRank& rank) {
          hosts.enter(rank.rank / 2);
          set_launch(rank.rank, rank.size);
          const auto meeting = Rendezvous::meet({.where = where, .timeout_seconds = 40});
          body(*meeting);
          rank.wait_for_the_rest();
        },
        beside);
  }

  std::string tcp() const { return "tcp://" + hosts.address(0) + ":29500"; }

  TwoHosts hosts;
};

void expect_two_hosts(const Rendezvous& meeting) {
  const RankInfo& info = meeting.info();
  EXPECT_EQ(info.nodes, 2);
  EXPECT_EQ(info.node, info.rank / 2);
  EXPECT_EQ(info.local_rank, info.rank % 2);
  EXPECT_EQ(info.local_world, 2);
  EXPECT_THAT(info.host, HasSubstr(info.rank < 2 ? "(node 0)" : "(node 1)"));  // of one name
}

TEST_F(Hosts, MeetByTcp) {
  run(tcp(), [&](Rendezvous& meeting) {
    expect_two_hosts(meeting);
    EXPECT_EQ(meeting.info().address, hosts.address(meeting.info().node));
    for (int round = 0; round < 20; ++round)
      EXPECT_EQ(meeting.all_gather(std::to_string(meeting.info().rank)),
                (std::vector<std::string>{"0", "1", "2", "3"}));
  });
}

TEST_F(Hosts, MeetByAFileThatTheyShare) {
  const TempFolder folder;
  run("file://" + (folder.path() / "meeting").string(),
      [](Rendezvous& meeting) { expect_two_hosts(meeting); });
}

TEST_F(Hosts, ThatDoNotReachEachOtherSaySo) {
  hosts.pull_the_cable();
  run_forked_ranks(2, [&](const ForkedRank& rank) {
    hosts.enter(rank.rank);
    set_launch(rank.rank, rank.size);
    const std::string error =
        message_of<PeerError>([&] { Rendezvous::meet({.where = tcp(), .timeout_seconds = 1}); });
    EXPECT_THAT(error, HasSubstr(rank.rank == 0 ? "rank 0 has come, rank 1 is missing"
                                                : "rank 1 waited 1 s for rank 0 at tcp://10.213.77.1:29500"));
  });
}

class GlooHosts : public Hosts, public ::testing::WithParamInterface<ConformanceCase> {};

TEST_P(GlooHosts, Conform) {
  run(tcp(), [&](Rendezvous& meeting) {
    GetParam().run(make_gloo_communicator(meeting, {.timeout_seconds = GetParam().timeout_seconds}));
  });
}

const auto name_of_case = [](const auto& what) { return std::string(what.param.name); };
INSTANTIATE_TEST_SUITE_P(Results, GlooHosts, ::testing::ValuesIn(result_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Departures, GlooHosts, ::testing::ValuesIn(departure_cases()), name_of_case);

class HierarchicalHosts : public GlooHosts {};

TEST_P(HierarchicalHosts, Conform) {
  run(tcp(), [&](Rendezvous& meeting) {
    GetParam().run(
        make_hierarchical_communicator(meeting, {.comm = {.timeout_seconds = GetParam().timeout_seconds}}));
  });
}

INSTANTIATE_TEST_SUITE_P(Results, HierarchicalHosts, ::testing::ValuesIn(result_cases_of_any_order()),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Departures, HierarchicalHosts, ::testing::ValuesIn(departure_cases()), name_of_case);

TEST_F(Hosts, AddUpInsideEachBeforeBetweenThem) {
  run(tcp(), [&](Rendezvous& meeting) {
    const auto comm = make_hierarchical_communicator(meeting);
    EXPECT_EQ(comm->name(), "shm+gloo");
    expect_sums_by_host(*comm, {0, 0, 1, 1});
    comm->finish();
  });
}

TEST_F(Hosts, OfAFileFindTheirAddressesForGloo) {
  const TempFolder folder;
  run("file://" + (folder.path() / "meeting").string(), [](Rendezvous& meeting) {
    EXPECT_EQ(meeting.info().address, "");
    const auto comm = make_gloo_communicator(meeting);
    DeviceValues<float> data(*comm, {1.0F});
    comm->all_reduce(data.view());
    EXPECT_EQ(data.read(*comm)[0], 4.0F);
    comm->finish();
  });
}

TEST_F(Hosts, OfAFileFailTogether) {
  const TempFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  run_forked_ranks(2, [&](const ForkedRank& rank) {
    hosts.enter(rank.rank);
    set_launch(rank.rank, rank.size);
    if (rank.rank == 1) setenv("GLOO_SOCKET_IFNAME", "no-such-interface", 1);
    try {
      const auto meeting = Rendezvous::meet({.where = "file://" + (folder.path() / "meeting").string()});
      make_gloo_communicator(*meeting);
      ADD_FAILURE() << "made with one rank alone";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr(rank.rank == 1 ? "no-such-interface" : "rank 1 left before the end"));
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));  // not a minute
}

using Make = std::function<std::unique_ptr<Communicator>(Rendezvous&, const CommOptions&)>;

class WithoutACable : public Hosts, public ::testing::WithParamInterface<Make> {};

TEST_P(WithoutACable, MeetTheDeadline) {
  const Notice connected, pulled;
  run(
      tcp(),
      [&](Rendezvous& meeting) {
        const auto comm = GetParam()(meeting, {.timeout_seconds = 2});
        comm->barrier();
        connected.give();
        ASSERT_TRUE(pulled.await());
        const std::string error = message_of<PeerError>([&] { comm->barrier(); });
        EXPECT_THAT(error, HasSubstr(meeting.info().node == 0 ? "2, 3" : "0, 1"));
      },
      [&](const std::vector<pid_t>&) {
        EXPECT_TRUE(connected.await(4));
        hosts.pull_the_cable();
        pulled.give(4);
      });
}

INSTANTIATE_TEST_SUITE_P(
    All, WithoutACable,
    ::testing::Values([](Rendezvous& meeting,
                         const CommOptions& options) { return make_gloo_communicator(meeting, options); },
                      [](Rendezvous& meeting, const CommOptions& options) {
                        return make_hierarchical_communicator(meeting, {.comm = options});
                      }),
    [](const auto& make) { return make.index == 0 ? "Gloo" : "Hierarchical"; });

TEST_F(Hosts, MeetByMpi) {
  const TempFolder folder;
  // In the place of ssh: it gets a host and a command.
  const auto agent = folder.write("agent", "#!/bin/sh\nhost=$1\nshift\ncase $host in\n" + hosts.address(0) +
                                               ") name=" + hosts.name(0) + " ;;\n*) name=" + hosts.name(1) +
                                               " ;;\nesac\nexec ip netns exec $name sh -c \"$*\"\n");
  chmod(agent.c_str(), 0755);
  std::map<std::string, std::string> environment = mpirun_environment(folder);
  environment["CONVOY_TEST_NODES"] = "2";
  const ProcessResult result = run_program({"/usr/sbin/ip",
                                            "netns",
                                            "exec",
                                            hosts.name(0),
                                            CONVOY_MPIRUN,
                                            "--host",
                                            hosts.address(0) + ":2," + hosts.address(1) + ":2",
                                            "--mca",
                                            "plm_rsh_agent",
                                            agent.string(),
                                            "--mca",
                                            "btl",
                                            "tcp,self",
                                            "--mca",
                                            "btl_tcp_if_include",
                                            TwoHosts::kNetwork,
                                            "--mca",
                                            "oob_tcp_if_include",
                                            TwoHosts::kNetwork,
                                            "-x",
                                            "CONVOY_TEST_NODES",
                                            "-x",
                                            "ASAN_OPTIONS",
                                            CONVOY_MPI_RANKS},
                                           {.environment = environment});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("PASSED"));
}

}  // namespace
}  // namespace convoy::testing

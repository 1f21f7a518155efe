// Tests of hierarchical communicators between forked processes, with simulated hosts and TCP. netns_test.cpp
// uses network namespaces as hosts; mpi_ranks.cpp uses MPI.
#include "convoy/comm/cluster/hierarchical/hierarchical_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <thread>

#include "convoy/comm/cluster/hierarchical/hierarchical_layout.h"
#include "convoy/comm/cluster/tcp/tcp_communicator.h"
#include "tests/comm/device_values.h"
#include "tests/comm/rendezvous_ranks.h"
#include "tests/comm/transport/conformance.h"
#include "tests/comm/transport/corruption.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/notice.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Hosts = std::vector<int>;  // by rank

const Hosts kPairs = {0, 0, 1, 1};

std::unique_ptr<dist::Communicator> make(dist::Rendezvous& rendezvous, const Hosts& hosts,
                                         const dist::HierarchicalOptions& options = {}) {
  return dist::make_hierarchical_communicator(
      dist::make_tcp_links(rendezvous, options.comm,
                           dist::hierarchical_graph(hosts, options.comm.all_reduce)),
      hosts, [&](const std::string& text) { return rendezvous.all_gather(text); }, options);
}

void run_on_hosts(const Hosts& hosts, const std::function<void(dist::Rendezvous&)>& body,
                  const std::function<void(const std::vector<pid_t>&)>& in_parent = nullptr) {
  run_rendezvous_ranks(static_cast<int>(hosts.size()), "tcp://127.0.0.1:" + std::to_string(free_port()), body,
                       in_parent);
}

TEST(HierarchicalLayout, FindsRanksOfEachHost) {
  const dist::HierarchicalLayout layout(Hosts{7, 2, 7, 2, 7}, 3);
  EXPECT_EQ(layout.hosts(), 2);
  EXPECT_THAT(layout.ranks_of(0), ElementsAre(0, 2, 4));
  EXPECT_THAT(layout.host_ranks(), ElementsAre(1, 3));
  EXPECT_EQ(layout.host(), 1);
  EXPECT_EQ(layout.local_rank(), 1);
  EXPECT_EQ(layout.leaders_per_host(), 2);
  EXPECT_TRUE(layout.is_leader());
  EXPECT_FALSE(dist::HierarchicalLayout(Hosts{7, 2, 7, 2, 7}, 4).is_leader());
  EXPECT_EQ(layout.peer_of(2, 1), 3);
  EXPECT_EQ(layout.peer_of(4, 1), 1);  // host 1 has no third rank, so its first rank is the peer
  EXPECT_EQ(layout.peer_of(3, 0), 2);
}

TEST(HierarchicalLayout, ChunksGrowWithTheNumberOfMessages) {
  const auto mebibytes = [](int hosts, int ranks_per_host) {
    Hosts host_of_rank;
    for (int rank = 0; rank < hosts * ranks_per_host; ++rank) host_of_rank.push_back(rank / ranks_per_host);
    return dist::HierarchicalLayout(host_of_rank, 0).default_chunk_bytes() >> 20;
  };
  EXPECT_EQ(mebibytes(2, 1), 2U);
  EXPECT_EQ(mebibytes(4, 8), 2U);    // 32 messages of 64 KiB
  EXPECT_EQ(mebibytes(16, 8), 8U);   // 128
  EXPECT_EQ(mebibytes(64, 8), 16U);  // 512 of 32 KiB
}

TEST(HierarchicalLayout, SmallChunksTakeLessThanFourMebibytesPerHost) {
  for (const auto& [hosts, ranks_per_host] : {std::pair(2, 2), {2, 16}, {128, 8}, {2, 128}}) {
    Hosts host_of_rank;
    for (int rank = 0; rank < hosts * ranks_per_host; ++rank) host_of_rank.push_back(rank / ranks_per_host);
    const std::size_t chunk = dist::HierarchicalLayout(host_of_rank, 0).small_chunk_bytes();
    EXPECT_LE(chunk, 65536U);
    // Two chunks, two slices for sums and two checksums from each rank of the job, per rank of the host.
    const auto ranks = static_cast<std::size_t>(ranks_per_host);
    EXPECT_LT(ranks * 2 * (chunk + chunk / ranks + 8 * host_of_rank.size()), std::size_t{4} << 20)
        << hosts << " x " << ranks_per_host;
  }
}

TEST(HierarchicalLayout, HasOneLeaderPerHostIfAHostHasOneRank) {
  for (int rank = 0; rank < 4; ++rank) {
    const dist::HierarchicalLayout layout(Hosts{0, 0, 0, 1}, rank);
    EXPECT_EQ(layout.leaders_per_host(), 1);
    EXPECT_EQ(layout.is_leader(), rank == 0 || rank == 3);
  }
}

struct Placement {
  const char* name;
  Hosts hosts;
  std::size_t chunk_bytes = dist::HierarchicalOptions().chunk_bytes;
  dist::AllReduce algorithm = dist::AllReduce::automatic;
  friend std::ostream& operator<<(std::ostream& out, const Placement& placement) {
    return out << placement.name;
  }
};

Backend backend_of(const Placement& placement) {
  return {placement.name, [placement](int, const auto& body) {
            run_on_hosts(placement.hosts, [&](dist::Rendezvous& rendezvous) {
              body(
                  [&](dist::CommOptions options) {
                    options.all_reduce.algorithm = placement.algorithm;
                    return make(rendezvous, placement.hosts,
                                {.comm = options, .chunk_bytes = placement.chunk_bytes});
                  },
                  [&] { rendezvous.barrier(); });
            });
          }};
}

std::vector<ConformanceRun> runs(const std::vector<Placement>& placements,
                                 std::initializer_list<std::span<const ConformanceCase>> cases) {
  std::vector<ConformanceRun> all;
  for (const Placement& placement : placements)
    for (const ConformanceRun& run :
         conformance_runs(backend_of(placement), {static_cast<int>(placement.hosts.size())}, cases))
      all.push_back(run);
  return all;
}

const std::vector<Placement> kPlacements = {
    {"pairs", kPairs},
    {"pairs_in_chunks", kPairs, 20000},
    // Of two hosts, all algorithms add in the same order.
    {"pairs_by_ring", kPairs, 20000, dist::AllReduce::ring},
    {"pairs_by_halving", {0, 1, 1, 0}, 20000, dist::AllReduce::halving_doubling},
    {"pairs_by_tree", kPairs, 20000, dist::AllReduce::tree},
    {"unequal", {0, 0, 0, 1}},
    // Also unequal, with chunks so small that most data needs several.
    {"interleaved", {0, 1, 0, 1, 0}, 20000},
    {"each_alone", {2, 0, 1}},
    {"one_host", {0, 0}},
    {"alone", {0}}};

class HierarchicalCommunicator : public ::testing::TestWithParam<ConformanceRun> {};
TEST_P(HierarchicalCommunicator, Conforms) { GetParam().run(); }

const auto run_name = [](const auto& run) { return run.param.name(); };
INSTANTIATE_TEST_SUITE_P(Results, HierarchicalCommunicator,
                         ::testing::ValuesIn(runs(kPlacements, {result_cases_of_any_order()})), run_name);
INSTANTIATE_TEST_SUITE_P(Failures, HierarchicalCommunicator,
                         ::testing::ValuesIn(runs({{"pairs", kPairs},
                                                   {"unequal", {0, 1, 0}},
                                                   {"by_tree", {0, 1, 2, 0, 1, 2}, 0, dist::AllReduce::tree}},
                                                  {disagreement_cases(), departure_cases()})),
                         run_name);

/// More than 8 hosts: along a sparse graph, but for hosts with different numbers of ranks.
const Hosts kNineHosts = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8};
INSTANTIATE_TEST_SUITE_P(ManyHosts, HierarchicalCommunicator,
                         ::testing::ValuesIn(runs({{"nine", kNineHosts},
                                                   {"unequal", {0, 1, 2, 3, 4, 5, 6, 7, 8, 0}}},
                                                  {result_cases_of_any_order()})),
                         run_name);

TEST(HierarchicalGraph, HasFewMutualPeers) {
  for (const int hosts : {2, 8, 9, 16, 100}) {
    Hosts host_of_rank;
    for (int rank = 0; rank < 8 * hosts; ++rank) host_of_rank.push_back(rank / 8);
    std::vector<int> members(host_of_rank.size());
    std::iota(members.begin(), members.end(), 0);
    const dist::LinkGraph graph = dist::hierarchical_graph(host_of_rank, {});
    std::vector<std::vector<int>> peers;
    for (const int rank : members) peers.push_back(graph(members, rank));
    for (const int rank : members) {
      EXPECT_LE(peers[static_cast<std::size_t>(rank)].size(), 60U) << hosts;
      for (const int other : peers[static_cast<std::size_t>(rank)])
        ASSERT_EQ(std::ranges::count(peers[static_cast<std::size_t>(other)], rank), 1) << hosts;
    }
    // A part of them, as a split makes it: the ranks of the first two hosts but one.
    EXPECT_EQ(graph(std::span(members).first(15), 14).size(), 14U) << "unequal: all";
    EXPECT_LT(graph(std::span(members).first(16), 14).size(), 14U);
  }
}

class SumsOfHosts : public ::testing::TestWithParam<Placement> {};

TEST_P(SumsOfHosts, AreSummedByRankThenByHostAndRoundedOnce) {
  const Hosts& hosts = GetParam().hosts;
  run_on_hosts(hosts, [&](dist::Rendezvous& rendezvous) {
    const auto comm = make(
        rendezvous, hosts,
        {.comm = {.all_reduce = {.algorithm = GetParam().algorithm}}, .chunk_bytes = GetParam().chunk_bytes});
    EXPECT_EQ(comm->name(), "shm+tcp");
    expect_sums_by_host(*comm, hosts);
    comm->finish();
  });
}

INSTANTIATE_TEST_SUITE_P(All, SumsOfHosts, ::testing::ValuesIn(kPlacements),
                         [](const auto& placement) { return std::string(placement.param.name); });

/// Returns the memory that this process has committed and shares.
std::size_t committed_bytes() {
  std::size_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone).string().find("memfd:convoy") == std::string::npos)
      continue;
    struct stat status {};
    if (stat(entry.path().c_str(), &status) == 0) bytes += 512 * static_cast<std::size_t>(status.st_blocks);
  }
  return bytes;
}

/// Two hosts with eight ranks each.
TEST(HierarchicalMemory, GrowsWithTheFirstLargeSum) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  Hosts hosts;
  for (int rank = 0; rank < 16; ++rank) hosts.push_back(rank / 8);
  run_on_hosts(hosts, [&](dist::Rendezvous& rendezvous) {
    const auto comm = make(rendezvous, hosts);
    const auto part = comm->split(0);  // as that for statistics
    part->barrier();
    EXPECT_EQ(comm->gather_object(std::string(200'000, 'x')).size(), comm->rank() == 0 ? 16U : 0U);
    DeviceValues<float> small(*comm, std::vector<float>(10'000, 1.0F)),
        large(*comm, std::vector<float>(500'000, 1.0F));
    DeviceValues<float> text(*comm, std::vector<float>(200'000, 1.0F));
    comm->all_reduce(small.view());
    comm->broadcast(text.view(), 3);
    EXPECT_EQ(small.read(*comm)[0], 16.0F);
    EXPECT_GT(committed_bytes(), kMiB);
    EXPECT_LT(committed_bytes(), 2 * 4 * kMiB);  // of two communicators
    for (int i = 0; i < 3; ++i) comm->all_reduce(large.view());
    EXPECT_EQ(large.read(*comm)[499'999], 4096.0F);
    EXPECT_GT(committed_bytes(), 2 * 8 * kMiB);  // large chunks
    EXPECT_LT(committed_bytes(), 60 * kMiB);     // in place of the small ones
    DeviceValues<float> of_part(*part, std::vector<float>(500'000, 1.0F));
    part->all_reduce(of_part.view());
    EXPECT_EQ(of_part.read(*part)[0], 16.0F);
    part->finish();
    comm->finish();
  });
}

/// A rank aborts from another thread while the others wait for it in the collective that replaces the segment.
TEST(HierarchicalMemory, AnAbortWhileItGrowsReachesAllRanks) {
  run_on_hosts(kPairs, [&](dist::Rendezvous& rendezvous) {
    for (int microseconds = 0; microseconds < 4000; microseconds += 400) {
      const auto comm = make(rendezvous, kPairs);
      comm->barrier();
      DeviceValues<float> data(*comm, std::vector<float>(100'000, 1.0F));
      std::thread failing;
      if (comm->rank() == 1)
        failing = std::thread([&] {
          usleep(static_cast<useconds_t>(microseconds));
          comm->abort("rank 1: the disk is full");
        });
      const std::string error = message_of<PeerError>([&] {
        while (true) {
          comm->all_reduce(data.view());
          comm->barrier();
        }
      });
      EXPECT_THAT(error, HasSubstr("the disk is full"));
      if (failing.joinable()) failing.join();
      rendezvous.barrier();
    }
  });
}

TEST(HierarchicalFaults, AllRanksReportKilledRank) {
  const Hosts hosts = {0, 0, 0, 1, 1};
  for (const int victim : {0, 2, 3}) {  // a node leader, another rank, and a rank of the other host
    SCOPED_TRACE(victim);
    run_on_hosts(hosts, [&](dist::Rendezvous& rendezvous) {
      const auto comm = make(rendezvous, hosts);  // default timeout of minutes
      comm->barrier();
      if (comm->rank() == victim) raise(SIGKILL);
      const std::string error = message_of<PeerError>([&] { comm->barrier(); });
      EXPECT_THAT(error, HasSubstr("rank " + std::to_string(victim) + " has"));  // died or disconnected
    });
  }
}

TEST(HierarchicalFaults, AllRanksReportRankKilledDuringTransfer) {
  const Hosts hosts = {0, 1, 0, 1, 0};
  for (const int victim : {1, 4}) {
    SCOPED_TRACE(victim);
    const Notice moving;
    run_on_hosts(
        hosts,
        [&](dist::Rendezvous& rendezvous) {
          const auto comm = make(rendezvous, hosts, {.chunk_bytes = 8192});
          DeviceValues<float> data(*comm, std::vector<float>(1 << 18, 1.0F));
          const std::string error = message_of<PeerError>([&] {
            for (int round = 0;; ++round) {
              comm->all_reduce(data.view());
              comm->check_errors();
              if (round == 9) moving.notify();                   // after a barrier: data is being transferred
              if (round > 0 && round % 8 == 0) comm->barrier();  // bounds the queue
            }
          });
          EXPECT_THAT(error, HasSubstr("rank " + std::to_string(victim) + " has"));
        },
        [&](const std::vector<pid_t>& processes) {
          EXPECT_TRUE(moving.await(5));
          kill(processes[static_cast<std::size_t>(victim)], SIGKILL);
        });
  }
}

TEST(HierarchicalFaults, TimesOutWhenRankIsStopped) {
  const Notice reported;
  run_on_hosts(
      kPairs,
      [&](dist::Rendezvous& rendezvous) {
        const auto comm = make(rendezvous, kPairs, {.comm = {.timeout_seconds = 2}});
        comm->barrier();
        rendezvous.barrier();                   // all have returned from that of the communicator
        if (comm->rank() == 1) raise(SIGSTOP);  // until it is killed
        EXPECT_THAT(message_of<PeerError>([&] { comm->barrier(); }), HasSubstr("waited 2 s for rank 1"));
        reported.notify();
      },
      [&](const std::vector<pid_t>& processes) {
        EXPECT_TRUE(reported.await(3));
        kill(processes[1], SIGKILL);
      });
}

/// Rank 2, on another host, waits until rank 0, which waits for rank 2, has detected the failure of rank 1 on
/// its own host.
void expect_detected_while_waiting_for_other_host(const std::function<void(dist::Communicator&)>& fail_rank,
                                                  const char* reason) {
  const Notice detected;
  run_on_hosts({0, 0, 1}, [&](dist::Rendezvous& rendezvous) {
    const auto comm = make(rendezvous, {0, 0, 1});
    comm->barrier();
    rendezvous.barrier();  // all have returned from that of the communicator
    if (comm->rank() == 1) fail_rank(*comm);
    if (comm->rank() == 2) {
      EXPECT_TRUE(detected.await());
    }
    EXPECT_THAT(message_of<PeerError>([&] { comm->barrier(); }), HasSubstr(reason));
    if (comm->rank() == 0) detected.notify();
  });
}

TEST(HierarchicalFaults, DetectsLocalAbortWhileWaitingForOtherHost) {
  expect_detected_while_waiting_for_other_host(
      [](dist::Communicator& comm) { comm.abort("rank 1: no space left"); }, "rank 1: no space left");
}

TEST(HierarchicalFaults, DetectsLocalDeathWhileWaitingForOtherHost) {
  expect_detected_while_waiting_for_other_host([](dist::Communicator&) { raise(SIGKILL); }, "rank 1 has");
}

TEST(HierarchicalFaults, AllRanksReportFailedAllocationOnOneHost) {
  run_on_hosts(kPairs, [](dist::Rendezvous& rendezvous) {
    if (rendezvous.info().rank == 2) {
      const rlimit limit{1 << 20, 1 << 20};
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
      signal(SIGXFSZ, SIG_IGN);
    }
    EXPECT_THAT(message_of<PeerError>([&] { make(rendezvous, kPairs, {.chunk_bytes = 8 << 20}); }),
                HasSubstr("rank 2: shared memory: cannot allocate "));
    const auto comm = make(rendezvous, kPairs);  // of a few small chunks, which become large
    comm->barrier();
    DeviceValues<float> data(*comm, std::vector<float>(1 << 20, 1.0F));
    EXPECT_THAT(message_of<PeerError>([&] {
                  comm->all_reduce(data.view());
                  comm->synchronize();
                }),
                HasSubstr("rank 2: shared memory: cannot allocate "));
  });
}

struct CorruptionBetweenHosts {
  Corruption corruption;
  ChangedMessage message = {.from = -1, .to = -1, .number = 0};  // if a message changes, and not the segment
};

class HierarchicalCorruption : public ::testing::TestWithParam<CorruptionBetweenHosts> {};

TEST_P(HierarchicalCorruption, IsReportedBeforeTheResultIsUsed) {
  const auto& [corruption, message] = GetParam();
  run_on_hosts(kPairs, [&](dist::Rendezvous& rendezvous) {
    const auto comm = dist::make_hierarchical_communicator(
        std::make_unique<FlippingLinks>(dist::make_tcp_links(rendezvous, {}), message), kPairs,
        [&](const std::string& text) { return rendezvous.all_gather(text); }, {.chunk_bytes = 1 << 18});
    comm->barrier();
    std::optional<SegmentDamage> damage;
    if (comm->rank() == 1 && message.from < 0) damage.emplace(corruption.changed);
    expect_reported(*comm, corruption, 400'000);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Transfers, HierarchicalCorruption,
    ::testing::Values(
        CorruptionBetweenHosts{
            {"Contribution", all_reduced, sum_of_ranks(4), "rank 0 sent a contribution", value_of_rank(0)}},
        CorruptionBetweenHosts{{"PartialSum", all_reduced, sum_of_ranks(4), "rank 3 sent a partial sum"},
                               {3, 1, 1}},
        CorruptionBetweenHosts{{"SumBetweenHosts", all_reduced, sum_of_ranks(4), "rank 0 sent a sum"},
                               {0, 2, 2}},
        CorruptionBetweenHosts{
            {"SumWithinHost", all_reduced, sum_of_ranks(4), " sent a sum", sum_of_ranks(4)}},
        CorruptionBetweenHosts{{"ReduceScatterWithinHost", reduce_scattered, sum_of_ranks(4),
                                "rank 0 sent a contribution", value_of_rank(0)}},
        CorruptionBetweenHosts{
            {"ReduceScatterBetweenHosts", reduce_scattered, sum_of_ranks(4), "rank 2 sent a partial sum"},
            {2, 0, 1}},
        CorruptionBetweenHosts{
            {"BroadcastWithinHost", broadcasted, value_of_rank(0), "rank 0 sent data", value_of_rank(0)}},
        CorruptionBetweenHosts{{"BroadcastBetweenHosts", broadcasted, value_of_rank(0), "rank 0 sent data"},
                               {0, 2, 1}},
        CorruptionBetweenHosts{
            {"AllGatherWithinHost", all_gathered, value_of_rank(0), "rank 0 sent data", value_of_rank(0)}},
        CorruptionBetweenHosts{{"AllGatherBetweenHosts", all_gathered, value_of_rank(0), "rank 0 sent data"},
                               {0, 2, 1}}),
    [](const auto& test) { return test.param.corruption.name; });

TEST(HierarchicalCommunicator, UsesHostsOfRendezvous) {
  run_on_hosts({0, 0}, [](dist::Rendezvous& rendezvous) {  // both on this host
    const auto comm = dist::make_hierarchical_communicator(rendezvous);
    EXPECT_EQ(comm->name(), "shm+tcp");
    DeviceValues<float> data(*comm, {1.0F});
    comm->all_reduce(data.view());
    EXPECT_EQ(data.read(*comm)[0], 2.0F);
    comm->finish();
  });
}

}  // namespace
}  // namespace convoy::testing

// Ranks of several hosts, as processes of this machine that are told to be of different ones: memory inside,
// gloo between. With real hosts, and with MPI: netns_test.cpp, mpi_ranks.cpp.
#include "comm/hierarchical_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

#include "comm/gloo_communicator.h"
#include "comm/hierarchical_layout.h"
#include "tests/comm/conformance.h"
#include "tests/comm/device_values.h"
#include "tests/comm/meeting_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/notice.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Body = std::function<void(std::unique_ptr<Communicator>)>;
using Hosts = std::vector<int>;  // by rank

const Hosts kPairs = {0, 0, 1, 1};

std::unique_ptr<Communicator> make(Rendezvous& meeting, const Hosts& hosts,
                                   const HierarchicalOptions& options = {}) {
  return make_hierarchical_communicator(
      make_gloo_links(meeting, options.comm), hosts,
      [&](const std::string& mine) { return meeting.all_gather(mine); }, options);
}

void run_on_hosts(const Hosts& hosts, const std::function<void(Rendezvous&)>& body,
                  const std::function<void(const std::vector<pid_t>&)>& beside = nullptr) {
  run_meeting_ranks(static_cast<int>(hosts.size()), "tcp://127.0.0.1:" + std::to_string(free_port()), body,
                    beside);
}

TEST(HierarchicalLayout, FindsTheRanksOfEachHost) {
  const HierarchicalLayout layout(Hosts{7, 2, 7, 2, 7}, 3);
  EXPECT_EQ(layout.hosts(), 2);
  EXPECT_THAT(layout.ranks_of(0), ElementsAre(0, 2, 4));
  EXPECT_THAT(layout.neighbours(), ElementsAre(1, 3));
  EXPECT_EQ(layout.host(), 1);
  EXPECT_EQ(layout.local(), 1);
  EXPECT_EQ(layout.carriers(), 2);
  EXPECT_TRUE(layout.carries());
  EXPECT_FALSE(HierarchicalLayout(Hosts{7, 2, 7, 2, 7}, 4).carries());
  EXPECT_EQ(layout.proxy_of(2, 1), 3);
  EXPECT_EQ(layout.proxy_of(4, 1), 1);  // a third one has no counterpart: the first stands in
  EXPECT_EQ(layout.proxy_of(3, 0), 2);
}

TEST(HierarchicalLayout, HasOneCarrierAHostWhereOneIsAlone) {
  for (int rank = 0; rank < 4; ++rank) {
    const HierarchicalLayout layout(Hosts{0, 0, 0, 1}, rank);
    EXPECT_EQ(layout.carriers(), 1);
    EXPECT_EQ(layout.carries(), rank == 0 || rank == 3);
  }
}

struct Place {
  const char* name;
  Hosts hosts;
  std::size_t chunk_bytes = HierarchicalOptions().chunk_bytes;
  friend std::ostream& operator<<(std::ostream& out, const Place& place) { return out << place.name; }
};

Backend backend_of(const Place& place) {
  return {place.name, [place](int, const CommOptions& options, const Body& body) {
            run_on_hosts(place.hosts, [&](Rendezvous& meeting) {
              body(make(meeting, place.hosts, {.comm = options, .chunk_bytes = place.chunk_bytes}));
            });
          }};
}

std::vector<ConformanceRun> runs(const std::vector<Place>& places,
                                 std::initializer_list<std::span<const ConformanceCase>> cases) {
  std::vector<ConformanceRun> all;
  for (const Place& place : places)
    for (const ConformanceRun& run :
         conformance_runs(backend_of(place), {static_cast<int>(place.hosts.size())}, cases))
      all.push_back(run);
  return all;
}

const std::vector<Place> kPlaces = {{"pairs", kPairs},
                                    {"pairs_in_chunks", kPairs, 20000},
                                    {"unequal", {0, 0, 0, 1}},
                                    // Unequal, too, and chunks so small that most data takes many.
                                    {"interleaved", {0, 1, 0, 1, 0}, 20000},
                                    {"each_alone", {2, 0, 1}},
                                    {"one_host", {0, 0}},
                                    {"alone", {0}}};

class HierarchicalCommunicator : public ::testing::TestWithParam<ConformanceRun> {};
TEST_P(HierarchicalCommunicator, Conforms) { GetParam().run(); }

const auto name_of_run = [](const auto& run) { return run.param.name(); };
INSTANTIATE_TEST_SUITE_P(Results, HierarchicalCommunicator,
                         ::testing::ValuesIn(runs(kPlaces, {result_cases_of_any_order()})), name_of_run);
INSTANTIATE_TEST_SUITE_P(Failures, HierarchicalCommunicator,
                         ::testing::ValuesIn(runs({{"pairs", kPairs}, {"unequal", {0, 1, 0}}},
                                                  {disagreement_cases(), departure_cases()})),
                         name_of_run);

class SumsOfHosts : public ::testing::TestWithParam<Place> {};

TEST_P(SumsOfHosts, AreAddedByRankThenByHostAndRoundedOnce) {
  const Hosts& hosts = GetParam().hosts;
  run_on_hosts(hosts, [&](Rendezvous& meeting) {
    const auto comm = make(meeting, hosts, {.chunk_bytes = GetParam().chunk_bytes});
    EXPECT_EQ(comm->name(), "shm+gloo");
    expect_sums_by_host(*comm, hosts);
    comm->finish();
  });
}

INSTANTIATE_TEST_SUITE_P(All, SumsOfHosts, ::testing::ValuesIn(kPlaces),
                         [](const auto& place) { return std::string(place.param.name); });

TEST(HierarchicalFaults, ARankThatIsKilledIsNamedByAll) {
  const Hosts hosts = {0, 0, 0, 1, 1};
  for (const int victim : {0, 2, 3}) {  // one that carries, one that does not, and one of the other host
    SCOPED_TRACE(victim);
    run_on_hosts(hosts, [&](Rendezvous& meeting) {
      const auto comm = make(meeting, hosts);  // a deadline of minutes
      comm->barrier();
      if (comm->rank() == victim) raise(SIGKILL);
      const std::string error = message_of<PeerError>([&] { comm->barrier(); });
      EXPECT_THAT(error, HasSubstr("rank " + std::to_string(victim) + " has"));  // died, or gone
    });
  }
}

TEST(HierarchicalFaults, ARankThatIsKilledAmidDataIsNamedByAll) {
  const Hosts hosts = {0, 1, 0, 1, 0};
  for (const int victim : {1, 4}) {
    SCOPED_TRACE(victim);
    const Notice moving;
    run_on_hosts(
        hosts,
        [&](Rendezvous& meeting) {
          const auto comm = make(meeting, hosts, {.chunk_bytes = 8192});
          DeviceValues<float> data(*comm, std::vector<float>(1 << 18, 1.0F));
          const std::string error = message_of<PeerError>([&] {
            for (int round = 0;; ++round) {
              comm->all_reduce(data.view());
              comm->check_errors();
              if (round == 9) moving.give();                     // after a barrier: data does move
              if (round > 0 && round % 8 == 0) comm->barrier();  // or the queue has no end
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

TEST(HierarchicalFaults, ARankThatIsStoppedMeetsTheDeadline) {
  const Notice told;
  run_on_hosts(
      kPairs,
      [&](Rendezvous& meeting) {
        const auto comm = make(meeting, kPairs, {.comm = {.timeout_seconds = 2}});
        comm->barrier();
        if (comm->rank() == 1) raise(SIGSTOP);  // until it is killed
        EXPECT_THAT(message_of<PeerError>([&] { comm->barrier(); }), HasSubstr("waited 2 s for rank 1"));
        told.give();
      },
      [&](const std::vector<pid_t>& processes) {
        EXPECT_TRUE(told.await(3));
        kill(processes[1], SIGKILL);
      });
}

/// Rank 2 does not come until rank 0, which waits for it, has heard of its neighbour's end.
void expect_heard_while_waiting_elsewhere(const std::function<void(Communicator&)>& end, const char* reason) {
  const Notice heard;
  run_on_hosts({0, 0, 1}, [&](Rendezvous& meeting) {
    const auto comm = make(meeting, {0, 0, 1});
    comm->barrier();
    if (comm->rank() == 1) end(*comm);
    if (comm->rank() == 2) {
      EXPECT_TRUE(heard.await());
    }
    EXPECT_THAT(message_of<PeerError>([&] { comm->barrier(); }), HasSubstr(reason));
    if (comm->rank() == 0) heard.give();
  });
}

TEST(HierarchicalFaults, ANeighbourGivesUpWhileAnotherHostIsWaitedFor) {
  expect_heard_while_waiting_elsewhere([](Communicator& comm) { comm.abort("rank 1: no space left"); },
                                       "rank 1: no space left");
}

TEST(HierarchicalFaults, ANeighbourDiesWhileAnotherHostIsWaitedFor) {
  expect_heard_while_waiting_elsewhere([](Communicator&) { raise(SIGKILL); }, "rank 1 has");
}

TEST(HierarchicalFaults, NoMemoryOnOneHostIsToldToAll) {
  run_on_hosts(kPairs, [](Rendezvous& meeting) {
    if (meeting.info().rank == 2) {
      const rlimit limit{1 << 20, 1 << 20};
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
      signal(SIGXFSZ, SIG_IGN);
    }
    EXPECT_THAT(message_of<PeerError>([&] { make(meeting, kPairs, {.chunk_bytes = 8 << 20}); }),
                HasSubstr("rank 2: shared memory: no "));
  });
}

TEST(HierarchicalCommunicator, TakesTheHostsOfTheMeeting) {
  run_on_hosts({0, 0}, [](Rendezvous& meeting) {  // who are of one
    const auto comm = make_hierarchical_communicator(meeting);
    EXPECT_EQ(comm->name(), "shm+gloo");
    DeviceValues<float> data(*comm, {1.0F});
    comm->all_reduce(data.view());
    EXPECT_EQ(data.read(*comm)[0], 2.0F);
    comm->finish();
  });
}

}  // namespace
}  // namespace convoy::testing

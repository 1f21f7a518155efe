// What every rank of an mpirun does in the tests of MPI: one session, all cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "comm/hierarchical_communicator.h"
#include "comm/mpi_communicator.h"
#include "tests/comm/conformance.h"
#include "tests/comm/device_values.h"
#include "tests/support/errors.h"

namespace convoy::testing {
namespace {

Rendezvous* meeting = nullptr;

class MpiRanks : public ::testing::TestWithParam<ConformanceRun> {};

TEST_P(MpiRanks, Conform) {
  if (meeting->info().world < GetParam().what.min_ranks) GTEST_SKIP();
  GetParam().run();
}

/// The ranks are here already. They begin and end each case together: one may be long done with it while the
/// others wait for a deadline.
void run_here(int, const CommOptions& options,
              const std::function<void(std::unique_ptr<Communicator>)>& body) {
  body(make_mpi_communicator(*meeting, options));
  meeting->barrier();
}

INSTANTIATE_TEST_SUITE_P(All, MpiRanks,
                         ::testing::ValuesIn(conformance_runs({"mpi", run_here}, {4},
                                                              {result_cases(), disagreement_cases(),
                                                               departure_cases()})),
                         [](const auto& run) { return run.param.name(); });

/// Hosts as they are, or, where there is one alone, two of which the ranks take turns.
std::vector<int> hosts_of_ranks() {
  std::vector<int> hosts;
  for (const RankInfo& info : meeting->all()) hosts.push_back(info.nodes > 1 ? info.node : info.rank % 2);
  return hosts;
}

std::unique_ptr<Communicator> make_hierarchical(const CommOptions& options) {
  return make_hierarchical_communicator(make_mpi_links(*meeting), hosts_of_ranks(),
                                        [](const std::string& mine) { return meeting->all_gather(mine); },
                                        {.comm = options});
}

void run_hierarchical(int, const CommOptions& options,
                      const std::function<void(std::unique_ptr<Communicator>)>& body) {
  body(make_hierarchical(options));
  meeting->barrier();
}

INSTANTIATE_TEST_SUITE_P(Hierarchical, MpiRanks,
                         ::testing::ValuesIn(conformance_runs({"hierarchical", run_hierarchical}, {4},
                                                              {result_cases_of_any_order(),
                                                               disagreement_cases(), departure_cases()})),
                         [](const auto& run) { return run.param.name(); });

TEST(MpiHierarchical, AddsByRankThenByHost) {
  const auto comm = make_hierarchical({});
  EXPECT_EQ(comm->name(), "shm+mpi");
  expect_sums_by_host(*comm, hosts_of_ranks());
  comm->finish();
}

TEST(MpiMeeting, KnowsEverybody) {
  const RankInfo& info = meeting->info();
  EXPECT_EQ(info.source, "mpi");
  const char* const hosts = std::getenv("CONVOY_TEST_NODES");
  const int nodes = hosts == nullptr ? 1 : std::atoi(hosts);
  EXPECT_EQ(info.nodes, nodes);
  EXPECT_EQ(info.local_world, info.world / nodes);
  EXPECT_EQ(info.local_rank, info.rank % info.local_world);
  ASSERT_EQ(meeting->all().size(), static_cast<std::size_t>(info.world));
  EXPECT_EQ(meeting->all()[static_cast<std::size_t>(info.rank)].rank, info.rank);
  EXPECT_THAT(meeting->note(), ::testing::HasSubstr("OMPI_COMM_WORLD_*"));
  const std::vector<std::string> texts =
      meeting->all_gather(std::string(static_cast<std::size_t>(info.rank), 'x'));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], std::string(rank, 'x'));
}

TEST(MpiMeeting, HappensOnceAProcess) {
  EXPECT_THAT(message_of<UsageError>([] { Rendezvous::meet({.where = "mpi"}); }),
              ::testing::HasSubstr("once a process"));
}

/// Two communicators at once, from their own threads, as SyncBatchNorm's and the gradients'.
TEST(MpiCommunicator, MayBeUsedBesideAnother) {
  const auto first = make_mpi_communicator(*meeting);
  const auto second = first->split(0);
  DeviceValues<float> ones(*first, std::vector<float>(100000, 1.0F));
  DeviceValues<double> twos(*second, std::vector<double>(1000, 2.0));
  for (int i = 0; i < 20; ++i) {
    first->all_reduce(ones.view());
    second->all_reduce(twos.view());
    first->broadcast(ones.view(), 0);
    if (i == 10) twos.read(*second);
  }
  const double ranks = first->size();
  EXPECT_EQ(ones.read(*first)[99999], static_cast<float>(std::pow(ranks, 20)));
  EXPECT_EQ(twos.read(*second)[999], 2 * std::pow(ranks, 20));
  second->finish();
  first->finish();
}

TEST(MpiCommunicator, ThatWaitsTakesLittleTime) {
  const auto comm = make_mpi_communicator(*meeting);
  comm->barrier();
  timespec before{}, after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  if (comm->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  comm->barrier();
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double seconds = static_cast<double>(after.tv_sec - before.tv_sec) +
                         1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(seconds, 0.6);  // of the second that one that spins takes
  comm->finish();
}

TEST(MpiCommunicator, ComesAndGoesManyTimes) {
  const auto comm = make_mpi_communicator(*meeting);
  for (int i = 0; i < 200; ++i) {
    const auto part = comm->split(i % (comm->rank() + 1));
    part->barrier();
    part->finish();
  }
  comm->finish();
}

}  // namespace
}  // namespace convoy::testing

namespace {

/// What may happen to a rank of a program that looks like ours.
void suffer(const std::string& fault, convoy::Rendezvous& meeting) {
  using namespace convoy;
  const int rank = meeting.info().rank;
  const bool is_about_deadlines = fault == "does_not_come";
  const auto comm = make_mpi_communicator(meeting, {.timeout_seconds = is_about_deadlines ? 2.0 : 300.0});
  float value = 1;
  const View data{&value, {1}, DType::f32};
  comm->all_reduce(data);
  comm->barrier();
  try {
    if (fault == "all_throw") throw UsageError("no such flag");
    if (rank == 1) {
      if (fault == "throws") throw DataError("no data set here");
      if (fault == "killed") raise(SIGKILL);
      if (fault == "does_not_come") std::this_thread::sleep_for(std::chrono::minutes(5));
    }
  } catch (const Error& error) {
    // mpirun ends the job at the first rank that fails, perhaps before this one's own line is out: so the
    // others tell the cause.
    comm->abort("rank " + std::to_string(rank) + ": " + error.what());
    throw;
  }
  comm->all_reduce(data);
  comm->finish();
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string argument = argc > 1 ? argv[1] : "";
  const std::string flag = "--fault=";
  int rank = -1;
  try {
    const auto rendezvous = convoy::Rendezvous::meet();
    rank = rendezvous->info().rank;
    if (argument.starts_with(flag)) {
      suffer(argument.substr(flag.size()), *rendezvous);
      return 0;
    }
    convoy::testing::meeting = rendezvous.get();
    return RUN_ALL_TESTS();
  } catch (const convoy::Error& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return static_cast<int>(error.code());
  }
}

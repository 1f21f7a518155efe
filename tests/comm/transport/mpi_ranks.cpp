// The program that mpi_test.cpp runs under mpirun: all MPI test cases in one MPI session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "convoy/comm/cluster/hierarchical/hierarchical_communicator.h"
#include "convoy/comm/transport/mpi/mpi_communicator.h"
#include "tests/comm/device_values.h"
#include "tests/comm/process_size.h"
#include "tests/comm/transport/conformance.h"
#include "tests/comm/transport/sparse_order.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

dist::Rendezvous* mpi_rendezvous = nullptr;  // set by main()

/// Runs conformance cases on the existing ranks.
void run_on_mpi_ranks(std::initializer_list<std::span<const ConformanceCase>> lists,
                      const MakeCommunicator& make) {
  for (const std::span<const ConformanceCase> cases : lists)
    run_cases(cases, mpi_rendezvous->info().world_size, make, [] { mpi_rendezvous->barrier(); });
}

TEST(MpiCommunicator, Conforms) {
  run_on_mpi_ranks(
      {result_cases(), disagreement_cases(), departure_cases()},
      [](const dist::CommOptions& options) { return dist::make_mpi_communicator(*mpi_rendezvous, options); });
}

TEST(MpiCommunicator, ConformsAlongSparseGraphs) {
  for (const auto algorithm :
       {dist::AllReduce::ring, dist::AllReduce::halving_doubling, dist::AllReduce::tree}) {
    const MakeCommunicator make = [&](const dist::CommOptions& options) {
      dist::CommOptions sparse = options;
      sparse.all_reduce.algorithm = algorithm;
      return dist::make_mpi_communicator(*mpi_rendezvous, sparse);
    };
    const auto comm = make({});
    expect_summed_in_order(*comm, algorithm, 531);  // the bits of TCP
    comm->finish();
    if (algorithm == dist::AllReduce::tree) run_on_mpi_ranks({disagreement_cases(), departure_cases()}, make);
  }
}

/// Returns the hosts of the ranks; if there is only one, two simulated hosts with alternating ranks.
std::vector<int> hosts_of_ranks() {
  std::vector<int> hosts;
  for (const dist::RankInfo& info : mpi_rendezvous->all())
    hosts.push_back(info.nodes > 1 ? info.node : info.rank % 2);
  return hosts;
}

std::unique_ptr<dist::Communicator> make_hierarchical(const dist::CommOptions& options) {
  return dist::make_hierarchical_communicator(
      dist::make_mpi_links(*mpi_rendezvous), hosts_of_ranks(),
      [](const std::string& local) { return mpi_rendezvous->all_gather(local); }, {.comm = options});
}

TEST(MpiHierarchical, Conforms) {
  run_on_mpi_ranks({result_cases_of_any_order(), disagreement_cases(), departure_cases()}, make_hierarchical);
}

TEST(MpiHierarchical, SumsByRankThenByHost) {
  const auto comm = make_hierarchical({});
  EXPECT_EQ(comm->name(), "shm+mpi");
  expect_sums_by_host(*comm, hosts_of_ranks());
  comm->finish();
}

TEST(MpiRendezvous, ProvidesPositionsOfAllRanks) {
  const dist::RankInfo& info = mpi_rendezvous->info();
  EXPECT_EQ(info.source, "mpi");
  const char* const hosts = std::getenv("CONVOY_TEST_NODES");
  const int nodes = hosts == nullptr ? 1 : std::atoi(hosts);
  EXPECT_EQ(info.nodes, nodes);
  EXPECT_EQ(info.local_world_size, info.world_size / nodes);
  EXPECT_EQ(info.local_rank, info.rank % info.local_world_size);
  ASSERT_EQ(mpi_rendezvous->all().size(), static_cast<std::size_t>(info.world_size));
  EXPECT_EQ(mpi_rendezvous->all()[static_cast<std::size_t>(info.rank)].rank, info.rank);
  EXPECT_THAT(mpi_rendezvous->note(), ::testing::HasSubstr("OMPI_COMM_WORLD_*"));
  const std::vector<std::string> texts =
      mpi_rendezvous->all_gather(std::string(static_cast<std::size_t>(info.rank), 'x'));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], std::string(rank, 'x'));
}

TEST(MpiRendezvous, IsInitializedOncePerProcess) {
  EXPECT_THAT(message_of<UsageError>([] { dist::Rendezvous::init({.init_method = "mpi"}); }),
              ::testing::HasSubstr("only once per process"));
}

/// Uses two communicators concurrently, as SyncBatchNorm and the gradients do.
TEST(MpiCommunicator, SupportsConcurrentCommunicators) {
  const auto first = dist::make_mpi_communicator(*mpi_rendezvous);
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

TEST(MpiCommunicator, WaitingRanksUseLittleCpuTime) {
  const auto comm = dist::make_mpi_communicator(*mpi_rendezvous);
  comm->barrier();
  EXPECT_LT(cpu_seconds_of_late_barrier(*comm, 1000), 0.6);  // a spinning rank would use 1 s
  comm->finish();
}

TEST(MpiCommunicator, SplitsLeaveNothing) {
  const auto comm = dist::make_mpi_communicator(*mpi_rendezvous);
  int i = 0;
  expect_no_growth(400, [&] {
    const auto part = comm->split(i++ % (comm->rank() + 1));
    part->barrier();
    part->finish();
  });
  comm->finish();
}

}  // namespace
}  // namespace convoy::testing

namespace {

/// Rank 1 starts messages to the other ranks and stops before MPI has sent more than their first parts.
void stop_amid_data(convoy::dist::Communicator& comm, convoy::dist::Rendezvous& mpi_rendezvous) {
  const auto links = convoy::dist::make_mpi_links(mpi_rendezvous);
  std::vector<std::byte> data(std::size_t{8} << 20);
  if (comm.rank() == 1) {
    for (int other = 0; other < comm.size(); ++other)
      if (other != 1) links->send(other, data);
    raise(SIGSTOP);
  }
  links->receive(1, data);
  links->wait(convoy::dist::Deadline(2));
}

/// Sums 64 MiB again and again, and creates the file "started" in TMPDIR after the first time.
void sum_endlessly(convoy::dist::Communicator& comm) {
  std::vector<float> values(std::size_t{16} << 20);
  for (bool is_first = true;; is_first = false) {
    comm.all_reduce({values.data(), {std::int64_t{16} << 20}, convoy::DType::f32});
    comm.barrier();
    if (is_first) std::ofstream(std::filesystem::temp_directory_path() / "started").put('\n');
  }
}

/// Sums 8 MiB, which takes longer than the timeout if the link between two hosts is slow.
void sum_over_a_slow_link(convoy::dist::Communicator& comm) {
  std::vector<float> values(std::size_t{2} << 20, 1.0F);
  comm.all_reduce({values.data(), {std::int64_t{2} << 20}, convoy::DType::f32});
  comm.barrier();
  EXPECT_EQ(values.back(), static_cast<float>(comm.size()));
}

/// Runs collectives during which ranks fail in the given way.
void run_with_fault(const std::string& fault, convoy::dist::Rendezvous& mpi_rendezvous) {
  using namespace convoy;
  const int rank = mpi_rendezvous.info().rank;
  const double timeout = fault == "missing" || fault == "endless" ? 2.0 : fault == "slow_link" ? 8.0 : 300.0;
  const auto comm = dist::make_mpi_communicator(mpi_rendezvous, {.timeout_seconds = timeout});
  float value = 1;
  const View data{&value, {1}, DType::f32};
  comm->all_reduce(data);
  comm->barrier();
  try {
    if (fault == "all_throw") throw UsageError("no such flag");
    if (rank == 1) {
      if (fault == "throws") throw DataError("no data set here");
      if (fault == "killed") raise(SIGKILL);
      if (fault == "missing") std::this_thread::sleep_for(std::chrono::minutes(5));
    }
    if (fault == "endless") sum_endlessly(*comm);
    if (fault == "slow_link") sum_over_a_slow_link(*comm);
    if (fault == "stopped_amid_data") stop_amid_data(*comm, mpi_rendezvous);
  } catch (const Error& error) {
    // mpirun kills the job when the first rank fails, perhaps before this rank has printed its error. So the
    // other ranks also print the cause.
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
    const auto rendezvous = convoy::dist::Rendezvous::init();
    rank = rendezvous->info().rank;
    if (argument.starts_with(flag)) {
      run_with_fault(argument.substr(flag.size()), *rendezvous);
      return 0;
    }
    convoy::testing::mpi_rendezvous = rendezvous.get();
    return RUN_ALL_TESTS();
  } catch (const convoy::Error& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return static_cast<int>(error.code());
  }
}

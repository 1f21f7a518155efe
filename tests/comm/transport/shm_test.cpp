// Tests of shared-memory communicators between forked processes, including killed and stopped ones.
#include "convoy/comm/transport/shm/shm_communicator.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "convoy/comm/transport/shm/shared_memory.h"
#include "convoy/comm/transport/shm/shared_segment.h"
#include "tests/comm/device_values.h"
#include "tests/comm/transport/conformance.h"
#include "tests/comm/transport/corruption.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/notice.h"
#include "tests/testing/support/rank_processes.h"

namespace {
std::atomic<int> g_lock_queries = 0;
}

/// Counts the queries of locks in this program.
extern "C" int fcntl(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (command == F_OFD_GETLK) ++g_lock_queries;
  return static_cast<int>(syscall(SYS_fcntl, file, command, argument));
}

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<dist::Communicator> make(const ForkedRank& rank, const dist::ShmOptions& options) {
  return dist::make_shm_communicator(rank.rank, rank.size, rank.exchange, options);
}

Backend shm_backend(std::string name, std::size_t chunk_bytes) {
  return {.name = std::move(name), .run = [chunk_bytes](int ranks, const auto& body) {
            run_forked_ranks(ranks, [&](const ForkedRank& rank) {
              body(
                  [&](const dist::CommOptions& options) {
                    return make(rank, {.comm = options, .chunk_bytes = chunk_bytes});
                  },
                  [&] { rank.exchange(""); });
            });
          }};
}

class ShmCommunicator : public ::testing::TestWithParam<ConformanceRun> {};
TEST_P(ShmCommunicator, Conforms) { GetParam().run(); }

const auto run_name = [](const auto& run) { return run.param.name(); };
INSTANTIATE_TEST_SUITE_P(Shm, ShmCommunicator,
                         ::testing::ValuesIn(conformance_runs(shm_backend("shm",
                                                                          dist::ShmOptions().chunk_bytes),
                                                              {1, 2, 3, 4}, {result_cases()})),
                         run_name);
// Small chunks, so that nearly all data needs several.
INSTANTIATE_TEST_SUITE_P(SmallChunks, ShmCommunicator,
                         ::testing::ValuesIn(conformance_runs(shm_backend("small", 5000), {3},
                                                              {result_cases()})),
                         run_name);
INSTANTIATE_TEST_SUITE_P(
    Failures, ShmCommunicator,
    ::testing::ValuesIn(conformance_runs(shm_backend("shm", dist::ShmOptions().chunk_bytes), {2, 4},
                                         {disagreement_cases(), departure_cases()})),
    run_name);

constexpr std::chrono::seconds kAtOnce(20);  // far more than necessary, far less than the default timeout

/// One rank of six is late. The others ask 20 times a second whether it lives, and whether one other rank does.
TEST(ShmWaits, AskForTheRanksThatAreLate) {
  run_forked_ranks(6, [](const ForkedRank& rank) {
    const auto comm = make(rank, {});
    comm->barrier();
    g_lock_queries = 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(rank.rank == 5 ? 1500 : 0));
    comm->barrier();
    if (rank.rank != 5) {
      EXPECT_GE(g_lock_queries, 4);
      EXPECT_LE(g_lock_queries, 2 * 30);  // 5 * 30 for all ranks
    }
    comm->finish();
  });
}

/// Rank `dying` calls `die`, after the first collective or before it. The other ranks wait in a collective.
void expect_death_reported_at_once(int ranks, int dying, bool is_before_first, void (*die)()) {
  run_forked_ranks(ranks, [&](const ForkedRank& rank) {
    const auto comm = make(rank, {});  // default timeout of minutes
    if (!is_before_first) comm->barrier();
    if (rank.rank == dying) die();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(message_of<PeerError>([&] { comm->barrier(); }),
                HasSubstr("rank " + std::to_string(dying) + " has died"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kAtOnce);
  });
}

TEST(ShmFaults, ReportsDeadRankAtOnce) {
  const auto be_killed = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the other ranks are waiting
    kill(getpid(), SIGKILL);
  };
  expect_death_reported_at_once(2, 1, false, be_killed);
  expect_death_reported_at_once(4, 1, false, be_killed);
  expect_death_reported_at_once(2, 0, false, [] { _exit(0); });
  expect_death_reported_at_once(3, 1, true, [] { raise(SIGKILL); });
}

TEST(ShmFaults, ReportsRankKilledDuringTransfer) {
  run_forked_ranks(3, [](const ForkedRank& rank) {
    const auto comm = make(rank, {.chunk_bytes = 4096});
    DeviceValues<float> data(*comm, std::vector<float>(1 << 20, 1.0F));
    std::thread killer;
    if (rank.rank == 2)
      killer = std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        kill(getpid(), SIGKILL);
      });
    const std::string error = message_of<PeerError>([&] {
      while (true) {
        comm->all_reduce(data.view());
        comm->barrier();
      }
    });
    EXPECT_THAT(error, HasSubstr("rank 2 has died"));
    if (killer.joinable()) killer.join();
  });
}

TEST(ShmFaults, DetectsEarlierDeathWhenItMatters) {
  run_forked_ranks(2, [](const ForkedRank& rank) {
    dist::SharedSegment segment(rank.rank, rank.size, rank.exchange, 4096);
    segment.step();
    segment.wait(dist::Deadline(60));
    if (rank.rank == 1) raise(SIGKILL);  // it has executed all steps so far
    rank.wait_for_peers();
    for (int poll = 0; poll < 3; ++poll) {
      segment.poll_while_waiting();
      std::this_thread::sleep_for(std::chrono::milliseconds(60));  // longer than the poll interval
    }
    segment.step();
    EXPECT_THAT(message_of<PeerError>([&] { segment.wait(dist::Deadline(20)); }),
                HasSubstr("rank 1 has died"));
  });
}

TEST(ShmFaults, PollReportsKilledRank) {
  run_forked_ranks(3, [](const ForkedRank& rank) {
    const auto comm = make(rank, {});
    comm->barrier();
    if (rank.rank == 1) raise(SIGKILL);
    EXPECT_THAT(message_of<PeerError>([&] {
                  while (true) {
                    EXPECT_FALSE(comm->poll_peers());
                    std::this_thread::sleep_for(std::chrono::milliseconds(5));
                  }
                }),
                HasSubstr("rank 1 has died"));
  });
}

TEST(ShmFaults, WaitsForRankThatIsStoppedAndContinued) {
  run_forked_ranks(
      2,
      [](const ForkedRank& rank) {
        const auto comm = make(rank, {});
        DeviceValues<float> data(*comm, {1.0F});
        for (int i = 0; i < 20; ++i) {
          comm->all_reduce(data.view());
          comm->barrier();
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        EXPECT_EQ(data.read(*comm)[0], 1048576.0F);
        comm->finish();
      },
      [](const std::vector<pid_t>& processes) {
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
        kill(processes[1], SIGSTOP);
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        kill(processes[1], SIGCONT);
      });
}

TEST(ShmFaults, TimesOutWhenRankStaysStopped) {
  const Notice reported;
  run_forked_ranks(
      3,
      [&](const ForkedRank& rank) {
        const auto comm = make(rank, {.comm = {.timeout_seconds = 2}});
        comm->barrier();
        if (rank.rank == 0) raise(SIGSTOP);  // until it is killed
        const std::string error = message_of<PeerError>([&] { comm->barrier(); });
        EXPECT_THAT(error, HasSubstr("waited 2 s for rank 0"));
        reported.notify();
      },
      [&](const std::vector<pid_t>& processes) {
        EXPECT_TRUE(reported.await(2));
        kill(processes[0], SIGKILL);
      });
}

TEST(ShmFaults, CreationFailsWhenRankDies) {
  run_forked_ranks(3, [](const ForkedRank& rank) {
    if (rank.rank == 2) _exit(0);
    EXPECT_THROW(make(rank, {}), std::runtime_error);
  });
}

TEST(ShmFaults, AllRanksReportFailedAllocation) {
  run_forked_ranks(2, [](const ForkedRank& rank) {
    // The system refuses larger files than this.
    const rlimit limit{1 << 20, 1 << 20};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    const auto error_with = [&](std::size_t chunk_bytes) {
      return message_of<PeerError>([&] { make(rank, {.chunk_bytes = chunk_bytes}); });
    };
    EXPECT_THAT(error_with(std::size_t{1} << 50), HasSubstr("half of this machine's memory"));
    EXPECT_THAT(error_with(8 << 20), HasSubstr("rank 0: shared memory: cannot allocate "));
  });
}

TEST(ShmFaults, WaitingRanksUseNoCpuTime) {
  run_forked_ranks(3, [](const ForkedRank& rank) {
    const auto comm = make(rank, {});
    comm->barrier();
    EXPECT_LT(cpu_seconds_of_late_barrier(*comm, 500), 0.25);  // a spinning rank would use 0.5 s
    comm->finish();
  });
}

TEST(ShmFaults, LastRankWakesWaitingRanks) {
  run_forked_ranks(2, [](const ForkedRank& rank) {
    const auto comm = make(rank, {});
    comm->barrier();
    int woken = 0;
    for (int round = 0; round < 60; ++round) {
      // Long enough for the other rank to sleep. Without a wake-up call it would sleep for 50 ms.
      const bool waits = round % 2 != rank.rank;
      if (!waits) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      const auto begin = std::chrono::steady_clock::now();
      comm->barrier();
      woken += waits && std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(40) ? 1 : 0;
    }
    EXPECT_GE(woken, 10) << "of 30 waits";  // on a busy machine some ranks wake up late
    comm->finish();
  });
}

class ShmCorruption : public ::testing::TestWithParam<Corruption> {};

/// The last rank flips bits of the values that are in the segment, between their copies into it and out of
/// it.
TEST_P(ShmCorruption, IsReportedBeforeTheResultIsUsed) {
  run_forked_ranks(2, [](const ForkedRank& rank) {
    const auto comm = make(rank, {});
    comm->barrier();
    std::optional<SegmentDamage> damage;
    if (rank.rank == 1) damage.emplace(GetParam().changed);
    expect_reported(*comm, GetParam(), 200'000);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Transfers, ShmCorruption,
    ::testing::Values(
        Corruption{"ContributionToAllReduce", all_reduced, sum_of_ranks(2), "rank 0 sent a contribution",
                   value_of_rank(0)},
        Corruption{"ContributionOfTheOtherRank", all_reduced, sum_of_ranks(2), "rank 1 sent a contribution",
                   value_of_rank(1)},
        Corruption{"SumOfAllReduce", all_reduced, sum_of_ranks(2), " sent a sum", sum_of_ranks(2)},
        Corruption{"ContributionToReduceScatter", reduce_scattered, sum_of_ranks(2),
                   "rank 0 sent a contribution", value_of_rank(0)},
        Corruption{"Broadcast", broadcasted, value_of_rank(0), "rank 0 sent data", value_of_rank(0)},
        Corruption{"AllGather", all_gathered, value_of_rank(0), "rank 0 sent data", value_of_rank(0)}),
    [](const auto& test) { return test.param.name; });

std::size_t lines_of_maps_with(const std::string& what) {
  std::ifstream maps("/proc/self/maps");
  std::size_t found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find(what) != std::string::npos;
  return found;
}

std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                                std::filesystem::directory_iterator()));
}

TEST(ShmMemory, HasNoNameAndIsReleased) {
  run_forked_ranks(2, [&](const ForkedRank& rank) {
    const std::size_t files = open_files();
    for (int round = 0; round < 20; ++round) {
      const auto comm = make(rank, {});
      comm->barrier();
      EXPECT_EQ(open_files(), files + 1);
      EXPECT_EQ(lines_of_maps_with("memfd:convoy"), 1U);
      EXPECT_EQ(lines_of_maps_with("/dev/shm"), 0U);  // not even an unlinked file
      const auto part = comm->split(0);
      part->finish();
      comm->finish();
    }
    EXPECT_EQ(open_files(), files);
    EXPECT_EQ(lines_of_maps_with("memfd:convoy"), 0U);
  });
}

TEST(ShmMemory, CannotBeResized) {
  const dist::SharedMemory memory(4096);
  int process = 0, file = -1;
  ASSERT_EQ(std::sscanf(memory.address().c_str(), "%d %d", &process, &file), 2);
  EXPECT_NE(ftruncate(file, 0), 0);
  EXPECT_NE(ftruncate(file, 8192), 0);
  EXPECT_EQ(memory.data()[4095], 0);
}

TEST(ShmMemory, RejectsInvalidAddresses) {
  EXPECT_THAT(message_of<PeerError>([] { dist::SharedMemory("not an address"); }),
              HasSubstr("not an address"));
  EXPECT_THAT(message_of<PeerError>([] { dist::SharedMemory("999999999 3 17"); }),
              HasSubstr("must have the same host"));
  const dist::SharedMemory memory(4096);
  std::string address = memory.address();
  { const dist::SharedMemory again(address); }
  EXPECT_THAT(message_of<PeerError>([&] { dist::SharedMemory(address + "1"); }),
              HasSubstr("is another file"));
}

}  // namespace
}  // namespace convoy::testing

// Tests of gloo communicators between forked processes.
#include "convoy/comm/transport/gloo/gloo_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/comm/device_values.h"
#include "tests/comm/rendezvous_ranks.h"
#include "tests/comm/transport/conformance.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/notice.h"
#include "tests/testing/support/rank_processes.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
using Body = std::function<void(std::unique_ptr<dist::Communicator>)>;

/// Runs `body` on every rank with a gloo communicator.
void run_gloo(int ranks, const std::string& where, const dist::CommOptions& options, const Body& body) {
  run_rendezvous_ranks(ranks, where, [&](dist::Rendezvous& rendezvous) {
    body(dist::make_gloo_communicator(rendezvous, options));
  });
}

std::string new_tcp_url() { return "tcp://127.0.0.1:" + std::to_string(free_port()); }

Backend by_tcp() {
  return {"tcp", [](int ranks, const dist::CommOptions& options, const Body& body) {
            run_gloo(ranks, new_tcp_url(), options, body);
          }};
}

Backend by_file() {
  return {"file", [](int ranks, const dist::CommOptions& options, const Body& body) {
            const TempDirectory directory;
            run_gloo(ranks, "file://" + (directory.path() / "rendezvous").string(), options, body);
          }};
}

class GlooConformance : public ::testing::TestWithParam<ConformanceRun> {};
TEST_P(GlooConformance, Conforms) { GetParam().run(); }

const auto run_name = [](const auto& run) { return run.param.name(); };
INSTANTIATE_TEST_SUITE_P(Results, GlooConformance,
                         ::testing::ValuesIn(conformance_runs(by_tcp(), {1, 2, 4}, {result_cases()})),
                         run_name);
INSTANTIATE_TEST_SUITE_P(ResultsByFile, GlooConformance,
                         ::testing::ValuesIn(conformance_runs(by_file(), {3}, {result_cases()})), run_name);
INSTANTIATE_TEST_SUITE_P(Failures, GlooConformance,
                         ::testing::ValuesIn(conformance_runs(by_tcp(), {2, 4},
                                                              {disagreement_cases(), departure_cases()})),
                         run_name);

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(GlooFaults, ReportsKilledRankAtOnce) {
  run_rendezvous_ranks(4, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const auto comm = dist::make_gloo_communicator(rendezvous);  // default timeout of minutes
    comm->barrier();
    if (comm->rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the other ranks are waiting
      kill(getpid(), SIGKILL);
    }
    const double seconds = seconds_of([&] {
      EXPECT_THAT(message_of<PeerError>([&] { comm->barrier(); }), HasSubstr("rank 2 has disconnected"));
    });
    EXPECT_LT(seconds, 20);
  });
}

TEST(GlooFaults, ReportsRankKilledDuringTransfer) {
  run_rendezvous_ranks(3, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const auto comm = dist::make_gloo_communicator(rendezvous);
    DeviceValues<float> data(*comm, std::vector<float>(1 << 20, 1.0F));
    std::thread killer;
    if (comm->rank() == 0)  // which also serves the store
      killer = std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        kill(getpid(), SIGKILL);
      });
    const std::string error = message_of<PeerError>([&] {
      while (true) {
        comm->all_reduce(data.view());
        comm->barrier();
      }
    });
    EXPECT_THAT(error, HasSubstr("rank 0 has disconnected"));
    if (killer.joinable()) killer.join();
  });
}

TEST(GlooFaults, TimesOutWhenRankIsStopped) {
  const Notice reported;
  run_rendezvous_ranks(
      3, new_tcp_url(),
      [&](dist::Rendezvous& rendezvous) {
        const auto comm = dist::make_gloo_communicator(rendezvous, {.timeout_seconds = 2});
        comm->barrier();
        if (comm->rank() == 1) raise(SIGSTOP);  // until it is killed
        EXPECT_THAT(message_of<PeerError>([&] { comm->barrier(); }), HasSubstr("waited 2 s for rank 1"));
        reported.notify();
      },
      [&](const std::vector<pid_t>& processes) {
        EXPECT_TRUE(reported.await(2));
        kill(processes[1], SIGKILL);
      });
}

TEST(GlooFaults, ReportsRankThatDoesNotConnect) {
  run_rendezvous_ranks(3, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    if (rendezvous.info().rank == 1) {
      rendezvous.all_gather("");  // the exchange of the group name
      return;
    }
    EXPECT_THAT(
        message_of<PeerError>([&] { dist::make_gloo_communicator(rendezvous, {.timeout_seconds = 2}); }),
        HasSubstr("waited 2 s for the address of rank 1"));
  });
}

TEST(GlooFaults, WaitingRanksUseNoCpuTime) {
  run_rendezvous_ranks(3, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const auto comm = dist::make_gloo_communicator(rendezvous);
    comm->barrier();
    timespec before{}, after{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    if (comm->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    comm->barrier();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double seconds = static_cast<double>(after.tv_sec - before.tv_sec) +
                           1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
    EXPECT_LT(seconds, 0.2);  // a spinning rank would use 0.4 s
    comm->finish();
  });
}

std::size_t entries_of(const char* directory) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator()));
}

TEST(GlooCommunicator, LeavesNoThreadsAndConnections) {
  run_rendezvous_ranks(2, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const std::size_t files = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
    for (int round = 0; round < 10; ++round) {
      const auto comm = dist::make_gloo_communicator(rendezvous);
      const auto part = comm->split(0);
      part->barrier();
      part->finish();
      comm->finish();
    }
    EXPECT_LE(entries_of("/proc/self/fd"), files + 1);  // at most one more connection to the store
    // The system still lists a joined thread for a moment.
    for (int ms = 0; ms < 20'000 && entries_of("/proc/self/task") > threads; ++ms)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(entries_of("/proc/self/task"), threads);
  });
}

TEST(GlooCommunicator, UsesNamedInterface) {
  run_rendezvous_ranks(2, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    setenv("GLOO_SOCKET_IFNAME", "lo", 1);
    const auto comm = dist::make_gloo_communicator(rendezvous);
    comm->barrier();
    comm->finish();
    setenv("GLOO_SOCKET_IFNAME", "no-such-interface", 1);
    EXPECT_THAT(message_of<UsageError>([&] { dist::make_gloo_communicator(rendezvous); }),
                HasSubstr("cannot open connections from interface no-such-interface"));
  });
}

TEST(GlooCommunicator, OfOneRankNeedsNoStore) {
  run_forked_ranks(1, [](const ForkedRank&) {
    set_launch(0, 1);
    const auto rendezvous = dist::Rendezvous::init();
    const auto comm = dist::make_gloo_communicator(*rendezvous);
    DeviceValues<float> data(*comm, {3.0F});
    comm->all_reduce(data.view());
    EXPECT_EQ(data.read(*comm)[0], 3.0F);
    const auto part = comm->split(0);
    part->barrier();
    part->finish();
    comm->finish();
  });
}

}  // namespace
}  // namespace convoy::testing

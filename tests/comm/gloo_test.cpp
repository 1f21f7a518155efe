// Ranks that exchange data through gloo, as processes of their own that meet by TCP or by a file.
#include "comm/gloo_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/comm/conformance.h"
#include "tests/comm/device_values.h"
#include "tests/comm/meeting_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/notice.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temp_folder.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
using Body = std::function<void(std::unique_ptr<Communicator>)>;

/// With a communicator of each rank.
void run_gloo(int ranks, const std::string& where, const CommOptions& options, const Body& body) {
  run_meeting_ranks(ranks, where,
                    [&](Rendezvous& meeting) { body(make_gloo_communicator(meeting, options)); });
}

std::string new_tcp_place() { return "tcp://127.0.0.1:" + std::to_string(free_port()); }

Backend by_tcp() {
  return {"tcp", [](int ranks, const CommOptions& options, const Body& body) {
            run_gloo(ranks, new_tcp_place(), options, body);
          }};
}

Backend by_file() {
  return {"file", [](int ranks, const CommOptions& options, const Body& body) {
            const TempFolder folder;
            run_gloo(ranks, "file://" + (folder.path() / "meeting").string(), options, body);
          }};
}

class GlooConformance : public ::testing::TestWithParam<ConformanceRun> {};
TEST_P(GlooConformance, Conforms) { GetParam().run(); }

const auto name_of_run = [](const auto& run) { return run.param.name(); };
INSTANTIATE_TEST_SUITE_P(Results, GlooConformance,
                         ::testing::ValuesIn(conformance_runs(by_tcp(), {1, 2, 4}, {result_cases()})),
                         name_of_run);
INSTANTIATE_TEST_SUITE_P(ResultsByFile, GlooConformance,
                         ::testing::ValuesIn(conformance_runs(by_file(), {3}, {result_cases()})),
                         name_of_run);
INSTANTIATE_TEST_SUITE_P(Failures, GlooConformance,
                         ::testing::ValuesIn(conformance_runs(by_tcp(), {2, 4},
                                                              {disagreement_cases(), departure_cases()})),
                         name_of_run);

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(GlooFaults, ARankThatIsKilledIsNamedAtOnce) {
  run_meeting_ranks(4, new_tcp_place(), [](Rendezvous& meeting) {
    const auto comm = make_gloo_communicator(meeting);  // a deadline of minutes
    comm->barrier();
    if (comm->rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the others wait by now
      kill(getpid(), SIGKILL);
    }
    const double seconds = seconds_of(
        [&] { EXPECT_THAT(message_of<PeerError>([&] { comm->barrier(); }), HasSubstr("rank 2 has gone")); });
    EXPECT_LT(seconds, 20);
  });
}

TEST(GlooFaults, ARankThatIsKilledAmidDataIsNamed) {
  run_meeting_ranks(3, new_tcp_place(), [](Rendezvous& meeting) {
    const auto comm = make_gloo_communicator(meeting);
    DeviceValues<float> data(*comm, std::vector<float>(1 << 20, 1.0F));
    std::thread killer;
    if (comm->rank() == 0)  // which keeps the store, too
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
    EXPECT_THAT(error, HasSubstr("rank 0 has gone"));
    if (killer.joinable()) killer.join();
  });
}

TEST(GlooFaults, ARankThatIsStoppedMeetsTheDeadline) {
  const Notice told;
  run_meeting_ranks(
      3, new_tcp_place(),
      [&](Rendezvous& meeting) {
        const auto comm = make_gloo_communicator(meeting, {.timeout_seconds = 2});
        comm->barrier();
        if (comm->rank() == 1) raise(SIGSTOP);  // until it is killed
        EXPECT_THAT(message_of<PeerError>([&] { comm->barrier(); }), HasSubstr("waited 2 s for rank 1"));
        told.give();
      },
      [&](const std::vector<pid_t>& processes) {
        EXPECT_TRUE(told.await(2));
        kill(processes[1], SIGKILL);
      });
}

TEST(GlooFaults, ARankThatDoesNotConnectIsNamed) {
  run_meeting_ranks(3, new_tcp_place(), [](Rendezvous& meeting) {
    if (meeting.info().rank == 1) {
      meeting.all_gather("");  // as the others do, to agree on a name
      return;
    }
    EXPECT_THAT(message_of<PeerError>([&] { make_gloo_communicator(meeting, {.timeout_seconds = 2}); }),
                HasSubstr("waited 2 s for the address of rank 1"));
  });
}

TEST(GlooFaults, RanksThatWaitTakeNoTime) {
  run_meeting_ranks(3, new_tcp_place(), [](Rendezvous& meeting) {
    const auto comm = make_gloo_communicator(meeting);
    comm->barrier();
    timespec before{}, after{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    if (comm->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    comm->barrier();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double seconds = static_cast<double>(after.tv_sec - before.tv_sec) +
                           1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
    EXPECT_LT(seconds, 0.2);  // of the 0.4 s that one that spins takes
    comm->finish();
  });
}

std::size_t entries_of(const char* folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST(GlooCommunicator, LeavesNoThreadAndNoConnection) {
  run_meeting_ranks(2, new_tcp_place(), [](Rendezvous& meeting) {
    const std::size_t files = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
    for (int round = 0; round < 10; ++round) {
      const auto comm = make_gloo_communicator(meeting);
      const auto part = comm->split(0);
      part->barrier();
      part->finish();
      comm->finish();
    }
    EXPECT_LE(entries_of("/proc/self/fd"), files + 1);  // one more connection to the store, at most
    // A thread that was joined is still listed for a moment.
    for (int ms = 0; ms < 20'000 && entries_of("/proc/self/task") > threads; ++ms)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(entries_of("/proc/self/task"), threads);
  });
}

TEST(GlooCommunicator, TakesAnInterfaceByItsName) {
  run_meeting_ranks(2, new_tcp_place(), [](Rendezvous& meeting) {
    setenv("GLOO_SOCKET_IFNAME", "lo", 1);
    const auto comm = make_gloo_communicator(meeting);
    comm->barrier();
    comm->finish();
    setenv("GLOO_SOCKET_IFNAME", "no-such-interface", 1);
    EXPECT_THAT(message_of<UsageError>([&] { make_gloo_communicator(meeting); }),
                HasSubstr("no connections from interface no-such-interface"));
  });
}

TEST(GlooCommunicator, OfOneRankNeedsNoMeeting) {
  run_forked_ranks(1, [](const ForkedRank&) {
    set_launch(0, 1);
    const auto meeting = Rendezvous::meet();
    const auto comm = make_gloo_communicator(*meeting);
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

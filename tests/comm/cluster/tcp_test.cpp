// Tests of TCP communicators between forked processes.
#include "convoy/comm/cluster/tcp/tcp_communicator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <span>
#include <thread>

#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/message_transport.h"
#include "tests/comm/device_values.h"
#include "tests/comm/rendezvous_ranks.h"
#include "tests/comm/transport/conformance.h"
#include "tests/comm/transport/corruption.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/notice.h"
#include "tests/testing/support/rank_processes.h"
#include "tests/testing/support/temp_directory.h"

namespace {
std::atomic<int> g_receptions = 0;
}

/// Counts the calls of this program.
extern "C" ssize_t recv(int socket, void* bytes, size_t size, int flags) {
  ++g_receptions;
  return recvfrom(socket, bytes, size, flags, nullptr, nullptr);
}

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

void run_cases_by_tcp(int ranks, const std::string& where, const auto& body) {
  run_rendezvous_ranks(ranks, where, [&](dist::Rendezvous& rendezvous) {
    body([&](const dist::CommOptions& options) { return dist::make_tcp_communicator(rendezvous, options); },
         [&] { rendezvous.barrier(); });
  });
}

std::string new_tcp_url() { return "tcp://127.0.0.1:" + std::to_string(free_port()); }

Backend by_tcp() {
  return {"tcp", [](int ranks, const auto& body) { run_cases_by_tcp(ranks, new_tcp_url(), body); }};
}

Backend by_file() {
  return {"file", [](int ranks, const auto& body) {
            const TempDirectory directory;
            run_cases_by_tcp(ranks, "file://" + (directory.path() / "rendezvous").string(), body);
          }};
}

/// Seven messages come one after another. A rank that asks all peers whenever one has sent something would call
/// recv() 28 times.
TEST(TcpLinks, ReceiveFromThePeersThatHaveSent) {
  constexpr int kRanks = 8;
  run_rendezvous_ranks(kRanks, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const auto comm = dist::make_tcp_communicator(rendezvous, {});
    comm->barrier();
    rendezvous.barrier();
    g_receptions = 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(60 * comm->rank()));
    comm->barrier();
    if (comm->rank() == 1) {  // rank 0 also serves the rendezvous
      EXPECT_GE(g_receptions, kRanks - 1);
      EXPECT_LE(g_receptions, 2 * kRanks);  // on a busy machine, a message may come in two parts
    }
    comm->finish();
  });
}

struct MessageCorruption {
  Corruption corruption;
  ChangedMessage message;
  bool all_ranks_know;  // in this collective; else the sum is right on all ranks but the receiver
};

class MessagesCorruption : public ::testing::TestWithParam<MessageCorruption> {};

TEST_P(MessagesCorruption, IsReportedByTheReceiverBeforeTheResultIsUsed) {
  const auto& [corruption, message, all_ranks_know] = GetParam();
  run_rendezvous_ranks(3, new_tcp_url(), [&](dist::Rendezvous& rendezvous) {
    dist::CpuCommunicator comm(std::make_unique<dist::MessageTransport>(
        std::make_unique<FlippingLinks>(dist::make_tcp_links(rendezvous, {}), message)));
    expect_reported(comm, corruption, 900'000, all_ranks_know || comm.rank() == message.to);
  });
}

/// 900,000 elements are sent in two pieces, of which the first one has 262,144 elements for each rank.
INSTANTIATE_TEST_SUITE_P(
    Transfers, MessagesCorruption,
    ::testing::Values(
        MessageCorruption{{"FirstContribution", all_reduced, sum_of_ranks(3), "rank 1 sent a contribution"},
                          {1, 2, 0},
                          true},
        MessageCorruption{{"SecondContribution", all_reduced, sum_of_ranks(3), "rank 0 sent a contribution"},
                          {0, 1, 1},
                          true},
        MessageCorruption{{"FirstSum", all_reduced, sum_of_ranks(3), "rank 2 sent a sum"}, {2, 0, 2}, false},
        MessageCorruption{{"LastSum", all_reduced, sum_of_ranks(3), "rank 2 sent a sum"}, {2, 0, 3}, false},
        MessageCorruption{{"ReduceScatter", reduce_scattered, sum_of_ranks(3), "rank 2 sent a contribution"},
                          {2, 1, 1},
                          false},
        MessageCorruption{{"Broadcast", broadcasted, value_of_rank(0), "rank 0 sent data"}, {0, 2, 1}, false},
        MessageCorruption{
            {"AllGather", all_gathered, value_of_rank(0), "rank 0 sent data"}, {0, 1, 0}, false}),
    [](const auto& test) { return test.param.corruption.name; });

/// Returns the ports of 127.0.0.1 on which this process listens.
std::vector<int> listening_ports() {
  std::vector<int> ports;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename().string());
    int listens = 0;
    socklen_t bytes = sizeof listens;
    sockaddr_in address{};
    socklen_t address_bytes = sizeof address;
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && listens != 0 &&
        getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &address_bytes) == 0)
      ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

class TcpConformance : public ::testing::TestWithParam<ConformanceRun> {};
TEST_P(TcpConformance, Conforms) { GetParam().run(); }

const auto run_name = [](const auto& run) { return run.param.name(); };
INSTANTIATE_TEST_SUITE_P(Results, TcpConformance,
                         ::testing::ValuesIn(conformance_runs(by_tcp(), {1, 2, 4}, {result_cases()})),
                         run_name);
INSTANTIATE_TEST_SUITE_P(ResultsByFile, TcpConformance,
                         ::testing::ValuesIn(conformance_runs(by_file(), {3}, {result_cases()})), run_name);
INSTANTIATE_TEST_SUITE_P(Failures, TcpConformance,
                         ::testing::ValuesIn(conformance_runs(by_tcp(), {2, 4},
                                                              {disagreement_cases(), departure_cases()})),
                         run_name);

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(TcpFaults, ReportsKilledRankAtOnce) {
  run_rendezvous_ranks(4, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const auto comm = dist::make_tcp_communicator(rendezvous);  // default timeout of minutes
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

TEST(TcpFaults, ReportsRankKilledDuringTransfer) {
  run_rendezvous_ranks(3, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const auto comm = dist::make_tcp_communicator(rendezvous);
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

TEST(TcpFaults, TimesOutWhenRankIsStopped) {
  const Notice reported;
  run_rendezvous_ranks(
      3, new_tcp_url(),
      [&](dist::Rendezvous& rendezvous) {
        const auto comm = dist::make_tcp_communicator(rendezvous, {.timeout_seconds = 2});
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

TEST(TcpFaults, ReportsRankThatDoesNotConnect) {
  run_rendezvous_ranks(3, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    if (rendezvous.info().rank == 1) {
      rendezvous.all_gather(fmt::format("number {} 127.0.0.1", free_port()));  // in place of the connector
      return;
    }
    EXPECT_THAT(
        message_of<PeerError>([&] { dist::make_tcp_communicator(rendezvous, {.timeout_seconds = 2}); }),
        HasSubstr(rendezvous.info().rank == 0 ? "rank 0 waited 2 s for a TCP connection of rank 1"
                                              : "rank 2 cannot reach rank 1 by TCP after 2 s"));
  });
}

/// A rank that is ahead has sent the first message of the next collective when it fails. Its reason, which names the
/// rank at fault, is behind that message in the connection.
TEST(TcpFaults, NameTheFirstCauseBehindUnreadMessages) {
  run_rendezvous_ranks(3, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const auto links = dist::make_tcp_links(rendezvous, {.timeout_seconds = 40});
    const std::string early(100'000, 'x');
    std::string received(1, ' ');
    if (links->rank() == 1) {
      links->send(0, std::as_bytes(std::span(early)));
      links->receive(2, std::as_writable_bytes(std::span(received)));
      EXPECT_THROW(links->wait(dist::Deadline(0.4)),
                   PeerError);  // meanwhile it tells its peers that it waits
      std::thread([&] { links->abort("the reason of rank 1"); }).join();
    }
    if (links->rank() == 0) {
      links->receive(2, std::as_writable_bytes(std::span(received)));  // which never sends
      EXPECT_EQ(message_of<PeerError>([&] { links->wait(dist::Deadline(40)); }), "the reason of rank 1");
    }
    rendezvous.barrier();
  });
}

/// A rank that exits with unread bytes resets its connections, which loses what it has sent last. The reason for which it
/// has exited comes from another rank.
TEST(TcpFaults, NameTheCauseThatArrivesAfterAReset) {
  run_rendezvous_ranks(3, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    auto links = dist::make_tcp_links(rendezvous, {.timeout_seconds = 40});
    std::string text(1, ' ');
    if (links->rank() == 0) {
      links->send(1, std::as_bytes(std::span(text)));  // rank 1 does not read it
      links->wait(dist::Deadline(40));
    }
    rendezvous.barrier();
    if (links->rank() == 1) links.reset();
    if (rendezvous.info().rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      links->abort("the reason of rank 2");
    }
    if (rendezvous.info().rank == 0) {
      links->receive(1, std::as_writable_bytes(std::span(text)));
      EXPECT_EQ(message_of<PeerError>([&] { links->wait(dist::Deadline(40)); }), "the reason of rank 2");
    }
    rendezvous.barrier();
  });
}

/// The receiver has read a part of a message when the sender fails: the rest and the reason follow.
TEST(TcpFaults, SendTheReasonBehindAPartOfAMessage) {
  run_rendezvous_ranks(2, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const auto links = dist::make_tcp_links(rendezvous, {.timeout_seconds = 40});
    std::string large(std::size_t{64} << 20, 'x');
    if (links->rank() == 0) {
      links->send(1, std::as_bytes(std::span(large)));
      EXPECT_THAT(message_of<PeerError>([&] { links->wait(dist::Deadline(0.3)); }),
                  HasSubstr("waited 0.3 s for rank 1"));
      large.clear();
      large.shrink_to_fit();  // the links no longer use it
      rendezvous.barrier();
      links->abort("the reason of rank 0");
    } else {
      rendezvous.barrier();
      std::string text(large.size(), ' ');
      links->receive(0, std::as_writable_bytes(std::span(text)));
      links->wait(dist::Deadline(40));
      EXPECT_EQ(text, large);
      links->receive(0, std::as_writable_bytes(std::span(text)));
      EXPECT_EQ(message_of<PeerError>([&] { links->wait(dist::Deadline(40)); }), "the reason of rank 0");
    }
    rendezvous.barrier();
  });
}

TEST(TcpFaults, RefuseAMessageOfAnotherLength) {
  run_rendezvous_ranks(2, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const auto links = dist::make_tcp_links(rendezvous, {.timeout_seconds = 40});
    std::string text(10, 'x');
    if (links->rank() == 0) {
      links->send(1, std::as_bytes(std::span(text)));
      links->wait(dist::Deadline(40));
    } else {
      links->receive(0, std::as_writable_bytes(std::span(text)).first(9));
      EXPECT_THAT(message_of<PeerError>([&] { links->wait(dist::Deadline(40)); }),
                  HasSubstr("rank 0 has disconnected: it has sent 10 bytes, expected 9"));
    }
    rendezvous.barrier();
  });
}

/// The thread of a communicator is outside wait() when another thread calls abort().
TEST(TcpFaults, SendTheReasonWhileTheRankIsBusy) {
  run_rendezvous_ranks(2, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const auto links = dist::make_tcp_links(rendezvous, {.timeout_seconds = 40});
    std::string text(1, ' ');
    if (links->rank() == 0) {
      links->abort("first");
      links->abort("second");
      rendezvous.barrier();
      links->send(1, std::as_bytes(std::span(text)));
      EXPECT_EQ(message_of<PeerError>([&] { links->wait(dist::Deadline(40)); }), "first");
      return;
    }
    links->receive(0, std::as_writable_bytes(std::span(text)));
    EXPECT_EQ(message_of<PeerError>([&] { links->wait(dist::Deadline(40)); }), "first");
    rendezvous.barrier();
  });
}

TEST(TcpFaults, WaitingRanksUseNoCpuTime) {
  run_rendezvous_ranks(3, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const auto comm = dist::make_tcp_communicator(rendezvous);
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

TEST(TcpCommunicator, LeavesNoThreadsAndConnections) {
  run_rendezvous_ranks(2, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const std::size_t files = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
    for (int round = 0; round < 10; ++round) {
      const auto comm = dist::make_tcp_communicator(rendezvous);
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

/// Strangers connect to all ports of this process during the whole run.
TEST(TcpCommunicator, IgnoresStrangers) {
  run_rendezvous_ranks(3, new_tcp_url(), [](dist::Rendezvous& rendezvous) {
    const auto comm = dist::make_tcp_communicator(rendezvous);
    std::atomic<bool> is_done = false;
    std::thread stranger([&] {
      while (!is_done)
        for (const int port : listening_ports()) {
          std::string reason;
          const auto socket = dist::try_connect({"127.0.0.1", port}, dist::Deadline(1), reason);
          if (socket) dist::send_all(*socket, std::string("GET / HTTP/1.1\r\n\r\n"), dist::Deadline(0.1));
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
    });
    for (int round = 0; round < 10; ++round) {
      const auto part = comm->split(comm->rank() == 0 ? 0 : 1);
      part->barrier();
      part->finish();
    }
    is_done = true;
    stranger.join();
    comm->finish();
  });
}

TEST(TcpCommunicator, OfOneRank) {
  run_forked_ranks(1, [](const ForkedRank&) {
    set_launch(0, 1);
    const auto rendezvous = init_rendezvous();
    const auto comm = dist::make_tcp_communicator(*rendezvous);
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

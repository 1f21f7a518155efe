// Tests of TCP stores whose rank 0 is suspended for a while, and whose connections are dropped.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/cluster/store/tcp_store.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/free_port.h"
#include "tests/testing/support/rank_processes.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kPatience = 40;

/// Forwards connections to a port of this machine, until it drops them.
class Router {
 public:
  explicit Router(int port) : port_(port), thread_([this] { forward(); }) {}
  ~Router() {
    stopping_ = true;
    thread_.join();
  }
  int port() const { return dist::local_port_of(listener_); }
  /// Closes the connection of this moment. Later connections are forwarded.
  void drop() { dropping_ = true; }
  int connections() const { return connections_; }

 private:
  void forward() {
    dist::Socket client, server;
    std::string up, down;
    while (!stopping_) {
      if (dropping_.exchange(false)) client = dist::Socket(), server = dist::Socket();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!client) {
        std::optional<dist::Socket> next = dist::accept_waiting(listener_);
        if (!next) continue;
        std::string reason;
        server =
            std::move(dist::try_connect({"127.0.0.1", port_}, dist::Deadline(kPatience), reason).value());
        client = std::move(*next);
        ++connections_;
      }
      dist::receive_some(client, up, dist::Deadline(0));
      dist::receive_some(server, down, dist::Deadline(0));
      dist::send_all(server, std::exchange(up, ""), dist::Deadline(kPatience));
      dist::send_all(client, std::exchange(down, ""), dist::Deadline(kPatience));
    }
  }

  dist::Socket listener_ = dist::listen_at({"127.0.0.1", 0});
  int port_;
  std::atomic<bool> stopping_ = false, dropping_ = false;
  std::atomic<int> connections_ = 0;
  std::thread thread_;
};

TEST(StoreConnections, AreOpenedAgainIfTheNetworkDropsThem) {
  const int port = free_port();
  const auto first = std::make_unique<dist::TcpStore>(
      dist::Endpoint{"127.0.0.1", port}, dist::StoreMember{0, 2, "job"}, dist::Deadline(kPatience));
  Router router(port);
  dist::TcpStore second({"127.0.0.1", router.port()}, {1, 2, "job"}, dist::Deadline(kPatience));
  second.set("a/1", "1");
  for (int drops = 1; drops <= 3; ++drops) {
    router.drop();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    second.set(fmt::format("b{}/1", drops), "2");
    EXPECT_EQ(second.get("a/1", dist::Deadline(kPatience)), "1");
    EXPECT_EQ(first->get(fmt::format("b{}/1", drops), dist::Deadline(0)), "2");
    EXPECT_EQ(router.connections(), 1 + drops);
  }
}

TEST(StoreConnections, SurviveARankZeroThatIsSuspended) {
  const int port = free_port();
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  run_forked_ranks(
      2,
      [&](const ForkedRank& rank) {
        dist::TcpStore store({"127.0.0.1", port}, {rank.rank, 2, "job"}, dist::Deadline(kPatience));
        rank.exchange("");
        if (rank.rank == 1) {
          kill(getppid(), SIGUSR1);  // the parent suspends rank 0
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          EXPECT_THAT(message_of<PeerError>([&] { store.set("a/1", "1", 0.2); }),
                      HasSubstr("rank 0 does not answer"));
          store.set("a/1", "1", kPatience);
          EXPECT_EQ(store.get("a/1", dist::Deadline(0), kPatience), "1");
        }
        rank.wait_for_peers();
      },
      [&](const std::vector<pid_t>& ranks) {
        int received = 0;
        sigwait(&signals, &received);
        kill(ranks[0], SIGSTOP);
        std::this_thread::sleep_for(std::chrono::seconds(2));
        kill(ranks[0], SIGCONT);
      });
}

}  // namespace
}  // namespace convoy::testing

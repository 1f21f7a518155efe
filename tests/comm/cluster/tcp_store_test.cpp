// Tests of the TCP store: secrets, untrusted clients, addresses, a rank 0 that is suspended for a while, and dropped
// connections.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <thread>

#include "convoy/comm/cluster/net/handshake.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/cluster/store/tcp_store.h"
#include "convoy/kernels/base/error.h"
#include "tests/comm/cluster/connection_flood.h"
#include "tests/comm/cluster/store_locations.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/free_port.h"
#include "tests/testing/support/rank_processes.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

dist::Socket connect_raw(const dist::Endpoint& endpoint) {
  std::string reason;
  return std::move(*dist::try_connect(endpoint, dist::Deadline(5), reason));
}

/// Returns whether the server closes the connection within this time.
bool is_disconnected(const dist::Socket& socket, double seconds) {
  std::string bytes;
  const dist::Deadline deadline(seconds);
  while (dist::receive_some(socket, bytes, deadline)) bytes.clear();
  return !deadline.passed();
}

/// Without descriptors for clients, rank 0 says so, and its server does not spin.
TEST(TcpStore, RefusesRanksWithoutDescriptors) {
  const TcpLocation location;
  const pid_t server = fork();
  if (server == 0) {
    const int highest = dup(0);
    const auto limit = static_cast<rlim_t>(highest) + 10;
    const rlimit few{limit, limit};
    setrlimit(RLIMIT_NOFILE, &few);
    const auto store = location.open(0, 32);
    pause();
  }
  std::vector<std::unique_ptr<dist::TcpStore>> ranks;
  const std::string error = message_of<PeerError>([&] {
    for (int rank = 1; rank < 32; ++rank) ranks.push_back(location.open(rank, 32));
  });
  EXPECT_THAT(error, HasSubstr("file descriptors of rank 0 are in use; raise its limit with ulimit -n"));
  EXPECT_GE(ranks.size(), 2u);
  const std::vector<dist::Socket> more = [&] {
    std::vector<dist::Socket> sockets;
    for (int i = 0; i < 3; ++i) sockets.push_back(connect_raw(location.endpoint));
    return sockets;
  }();
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  kill(server, SIGKILL);
  rusage used{};
  wait4(server, nullptr, 0, &used);
  EXPECT_LT(static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec),
            0.5)
      << "seconds of processor time";
}

/// The first port belongs to another job, and the second to a program that accepts connections and says
/// nothing.
TEST(TcpStore, UsesAnotherPortIfTheFirstIsTaken) {
  const TcpLocation location;
  const auto other_job = location.open_as({.rank = 0, .world_size = 2, .job = "other"}, kPatience);
  const dist::Socket silent = dist::listen_at({"127.0.0.1", 0});
  const int silent_port = dist::local_port_of(silent), free = free_port();
  const auto open = [&](int rank) {
    return std::make_unique<dist::TcpStore>(location.endpoint, dist::StoreMember{rank, 2, "job"},
                                            dist::Deadline(kPatience), std::vector<int>{silent_port, free});
  };
  auto waiting = std::async(std::launch::async, [&] { return open(1); });  // before rank 0 listens
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto first = open(0);
  const auto second = waiting.get();
  EXPECT_EQ(first->endpoint().port, free);
  EXPECT_EQ(second->endpoint().port, free);
  first->set("key/0", "value");
  EXPECT_EQ(second->get("key/0", dist::Deadline(kPatience)), "value");
}

TEST(TcpStore, FailsIfAllPortsAreTaken) {
  const dist::Socket taken = dist::listen_at({"127.0.0.1", 0}),
                     also_taken = dist::listen_at({"127.0.0.1", 0});
  const dist::Endpoint endpoint{"127.0.0.1", dist::local_port_of(taken)};
  const std::vector<int> others = {dist::local_port_of(also_taken)};
  EXPECT_THAT(message_of<UsageError>([&] {
                dist::TcpStore(endpoint, {0, 2, "job"}, dist::Deadline(kPatience), others);
              }),
              HasSubstr(fmt::format("port {} of this host is in use", others[0])));
  EXPECT_THAT(message_of<PeerError>([&] {
                dist::TcpStore(endpoint, {1, 2, "job"}, dist::Deadline(0.5), others);
              }),
              HasSubstr("waited 0.5 s for rank 0 at tcp://" + endpoint.text() + " (one of 2 places)"));
}

class TcpStoreUntrustedClients : public ::testing::Test {
 protected:
  TcpLocation location;
  std::unique_ptr<dist::TcpStore> first = location.open(0);
  std::unique_ptr<dist::TcpStore> second = location.open(1);

  // Seconds after which the server disconnects clients that have not sent a hello message.
  static constexpr double kHelloTimeout = 5;

  /// Checks that the ranks of the job can still exchange values.
  void expect_to_work(const std::string& key) {
    first->set(key + "/0", "1");
    EXPECT_EQ(second->get(key + "/0", dist::Deadline(kPatience)), "1");
  }

  /// Returns a connection that has completed the handshake of a rank.
  dist::Socket connect_with_secret() const {
    dist::Socket client = connect_raw(location.endpoint);
    dist::Handshake handshake = dist::Handshake::connect("", dist::kStoreClaim);
    std::string in;
    EXPECT_EQ(shake_hands(client, handshake, in, dist::Deadline(kPatience)), dist::Handshake::State::done);
    return client;
  }

  /// Returns whether the server disconnects a client that sends these bytes, before the hello timeout.
  bool is_disconnected_after(const std::string& bytes, bool with_secret = true) const {
    for (int tries = 0; tries < kTries; ++tries) {
      const dist::Socket client = with_secret ? connect_with_secret() : connect_raw(location.endpoint);
      dist::send_all(client, bytes, dist::Deadline(1));
      if (is_disconnected(client, 0.8 * kHelloTimeout)) return true;
    }
    return false;
  }
};

TEST_F(TcpStoreUntrustedClients, AreDisconnectedAfterInvalidData) {
  const std::string hello = dist::StoreFrame{dist::StoreFrame::Kind::hello, "job", "1 2 x"}.bytes();
  std::string endless = dist::StoreFrame{dist::StoreFrame::Kind::set, "k/0", "v"}.bytes();
  endless[10] = endless[11] = endless[12] = '\x7f';  // the value's length
  const std::string long_hello =
      dist::StoreFrame{dist::StoreFrame::Kind::hello, "job", std::string(5000, ' ')}.bytes();
  const std::string set_before_hello = dist::StoreFrame{dist::StoreFrame::Kind::set, "a/0", "stolen"}.bytes();
  std::string other_kind = hello;
  other_kind[5] = '\x63';
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("SSH-2.0-x\r\n"), std::string(100000, '\0'),
        endless, set_before_hello, other_kind, hello + hello, std::string("CVOY1"),
        dist::StoreFrame{dist::StoreFrame::Kind::ok, "", ""}.bytes()}) {
    EXPECT_TRUE(is_disconnected_after(garbage)) << garbage.substr(0, 20);
    EXPECT_TRUE(is_disconnected_after(garbage, false)) << garbage.substr(0, 20);
  }
  EXPECT_EQ(first->get("a/0", dist::Deadline(0)), std::nullopt);
  expect_to_work("after garbage");
}

TEST_F(TcpStoreUntrustedClients, CannotDisturbWithRandomBytes) {
  std::mt19937 random(7);
  const std::string hello = dist::StoreFrame{dist::StoreFrame::Kind::hello, "job", "1 2 x"}.bytes();
  for (int i = 0; i < 200; ++i) {
    std::string bytes = hello;
    for (int flips = 0; flips < 3; ++flips) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    const dist::Socket client = i % 4 == 0 ? connect_with_secret() : connect_raw(location.endpoint);
    dist::send_all(client, bytes, dist::Deadline(1));
  }
  expect_to_work("after random bytes");
}

TEST_F(TcpStoreUntrustedClients, CannotBlockOthersBySilence) {
  double seconds = kHelloTimeout;
  for (int tries = 0; tries < kTries && seconds >= 0.8 * kHelloTimeout; ++tries) {
    std::vector<dist::Socket> silent;
    seconds = seconds_of([&] {
      for (int i = 0; i < 350; ++i) silent.push_back(connect_raw(location.endpoint));
      expect_to_work("with silent clients, " + std::to_string(tries));
      EXPECT_TRUE(is_disconnected(silent.front(), kPatience));  // the server closes the oldest first
    });
    EXPECT_TRUE(is_disconnected(silent.back(), kPatience));  // the others after the timeout
  }
  EXPECT_LT(seconds, 0.8 * kHelloTimeout);
  expect_to_work("after the silent");
}

/// Clients that connect without a pause, and say nothing or something wrong, delay a rank for less than a
/// second.
TEST(TcpStore, AStreamOfConnectionsDoesNotBlockRanks) {
  const TcpLocation location;
  std::unique_ptr<dist::TcpStore> first = location.open(0, 2), second;
  const ConnectionFlood flood(location.endpoint.port);
  EXPECT_LT(seconds_of([&] {
              second = location.open(1, 2);
              first->set("key/0", "1");
              EXPECT_EQ(second->get("key/0", dist::Deadline(kPatience)), "1");
            }),
            3);
  EXPECT_LT(seconds_of([&] {
              second.reset();
              first.reset();
            }),
            3)
      << "the server does not end";
}

TEST_F(TcpStoreUntrustedClients, MaySendSlowly) {
  const dist::Socket slow = connect_with_secret();
  const std::string hello = dist::StoreFrame{dist::StoreFrame::Kind::hello, "other job", "1 2 x"}.bytes();
  for (std::size_t i = 0; i + 1 < hello.size(); ++i) {
    dist::send_all(slow, hello.substr(i, 1), dist::Deadline(1));
    if (i == 10) expect_to_work("amid a slow hello");
  }
  dist::send_all(slow, hello.substr(hello.size() - 1), dist::Deadline(1));
  std::string answer;
  ASSERT_TRUE(dist::receive_some(slow, answer, dist::Deadline(kPatience)));
  EXPECT_THAT(answer, HasSubstr("belongs to job 'job'"));
}

TEST_F(TcpStoreUntrustedClients, CannotImpersonateARank) {
  std::vector<dist::Socket> connections;
  const std::string hello = dist::StoreFrame{dist::StoreFrame::Kind::hello, "job", "1 2 x"}.bytes();
  const dist::Socket client = connect_with_secret();
  dist::send_all(client, hello, dist::Deadline(1));
  std::string answer;
  ASSERT_TRUE(dist::receive_some(client, answer, dist::Deadline(kPatience)));
  EXPECT_THAT(answer, HasSubstr("a rank 1 has already joined"));
  EXPECT_TRUE(is_disconnected_after(hello));
}

/// Even a client that is a rank of the job.
TEST(TcpStore, DisconnectsARankThatSetsTheKeyOfAnother) {
  const TcpLocation location;
  const auto first = location.open(0);
  using Kind = dist::StoreFrame::Kind;
  const auto is_answered = [&](const dist::StoreFrame& question) {
    const dist::Socket client = connect_raw(location.endpoint);
    dist::Handshake handshake = dist::Handshake::connect("", dist::kStoreClaim);
    std::string in, answer;
    EXPECT_EQ(shake_hands(client, handshake, in, dist::Deadline(kPatience)), dist::Handshake::State::done);
    dist::send_all(client, dist::StoreFrame{Kind::hello, "job", "1 2 x"}.bytes(), dist::Deadline(1));
    EXPECT_TRUE(dist::receive_some(client, answer, dist::Deadline(kPatience)));
    dist::send_all(client, question.bytes(), dist::Deadline(1));
    return dist::receive_some(client, answer, dist::Deadline(kPatience));
  };
  EXPECT_TRUE(is_answered({Kind::set, "a/1", "own"}));
  EXPECT_FALSE(is_answered({Kind::set, "a/0", "of rank 0"}));
  EXPECT_TRUE(is_answered({Kind::gather, "b/1", "50 0 own"}));
  EXPECT_FALSE(is_answered({Kind::gather, "b/0", "50 0 of rank 0"}));
  EXPECT_FALSE(is_answered({Kind::gather, "never set/1", "50 1 "}));
  EXPECT_EQ(first->get("a/1", dist::Deadline(0)), "own");
  EXPECT_EQ(first->get("a/0", dist::Deadline(0)), std::nullopt);
}

/// Sets CONVOY_SECRET for a test.
struct Secret {
  explicit Secret(const std::string& secret) { setenv(dist::kSecretVariable, secret.c_str(), 1); }
  ~Secret() { unsetenv(dist::kSecretVariable); }
};

TEST(TcpStore, CountsConnectionsThatEndInTheHandshake) {
  const TcpLocation location;
  std::unique_ptr<dist::TcpStore> first;
  {
    const Secret set("0123456789abcdef");
    first = location.open(0);
  }
  const Secret other("fedcba9876543210");
  EXPECT_THAT(message_of<PeerError>([&] { location.open(1); }), HasSubstr("has another CONVOY_SECRET"));
  EXPECT_EQ(first->get(dist::kRefusedKey, dist::Deadline(kPatience)), "1");
}

TEST(TcpStore, AdmitsOnlyRanksWithItsSecret) {
  const TcpLocation location;
  const std::string secret = "0123456789abcdef";
  std::unique_ptr<dist::TcpStore> first, second;
  {
    const Secret set(secret);
    first = location.open(0);
    second = location.open(1);
    second->set("a/1", "1");
    EXPECT_EQ(first->get("a/1", dist::Deadline(kPatience)), "1");
    second.reset();
  }
  for (const std::string& other : {std::string(), secret + "0", std::string("fedcba9876543210")}) {
    const Secret set(other);
    const double seconds = seconds_of([&] {
      EXPECT_THAT(message_of<PeerError>([&] { location.open(1); }),
                  HasSubstr("rank 0 there has another CONVOY_SECRET: set the same value on all ranks"));
    });
    EXPECT_LT(seconds, kAtOnce);
  }
  const Secret set("short");
  EXPECT_THAT(
      message_of<UsageError>([&] { location.open(1); }),
      HasSubstr(
          "CONVOY_SECRET: found 5 characters, expected at least 16; make one with: openssl rand -hex 16"));
}

TEST(TcpStore, ListensAtTheGivenAddress) {
  for (const char* host : {"127.0.0.1", "localhost", "::1"}) {
    const dist::Endpoint endpoint{host, free_port()};
    try {
      dist::listen_at(endpoint);
    } catch (const UsageError&) {
      continue;  // the machine has no IPv6
    }
    dist::TcpStore first(endpoint, {0, 2, ""}, dist::Deadline(kPatience));
    dist::TcpStore second(endpoint, {1, 2, ""}, dist::Deadline(kPatience));
    second.set("a/1", host);
    EXPECT_EQ(first.get("a/1", dist::Deadline(kPatience)), host);
    EXPECT_EQ(second.address_of_rank_0(), std::string(host) == "localhost" ? second.local_address() : host);
  }
}

TEST(TcpStore, ReportsPortOfAnotherProgram) {
  const dist::Endpoint endpoint{"127.0.0.1", free_port()};
  const dist::Socket other = dist::listen_at(endpoint);
  EXPECT_THAT(message_of<UsageError>([&] {
                dist::TcpStore(endpoint, {0, 2, ""}, dist::Deadline(kPatience));
              }),
              HasSubstr("of this host is in use; choose another port"));
  std::thread answering([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    dist::Socket client;
    while (!client) client = dist::Socket(accept(other.descriptor(), nullptr, nullptr));
    dist::send_all(client, "220 smtp.example ready\r\n", dist::Deadline(1));
  });
  EXPECT_THAT(message_of<PeerError>([&] {
                dist::TcpStore(endpoint, {1, 2, ""}, dist::Deadline(kPatience));
              }),
              HasSubstr("does not speak the rendezvous protocol; another program uses the port"));
  answering.join();
}

TEST(TcpStore, ReportsWhyNoServerIsReached) {
  const auto error_of = [](const dist::Endpoint& endpoint) {
    return message_of<PeerError>([&] { dist::TcpStore(endpoint, {1, 2, ""}, dist::Deadline(0.3)); });
  };
  EXPECT_THAT(error_of({"127.0.0.1", free_port()}), HasSubstr("Connection refused"));
  EXPECT_THAT(error_of({"no-such-host.invalid", 1}), HasSubstr("no-such-host.invalid"));
}

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

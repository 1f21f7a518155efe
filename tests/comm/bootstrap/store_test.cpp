// Tests of the key-value stores: values, refused clients, and untrusted clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "convoy/comm/bootstrap/store/file_lock.h"
#include "convoy/comm/bootstrap/store/file_store.h"
#include "convoy/comm/bootstrap/store/tcp_store.h"
#include "convoy/kernels/base/error.h"
#include "tests/comm/bootstrap/store_locations.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kAtOnce = 20;  // seconds; far more than necessary, far less than kPatience
constexpr int kTries = 4;       // attempts at timing checks, which a busy machine can disturb

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

template <class P>
class Stores : public ::testing::Test {
 protected:
  P location;
};
using Locations = ::testing::Types<TcpLocation, FileLocation>;
TYPED_TEST_SUITE(Stores, Locations);

TYPED_TEST(Stores, KeepTheFirstValueOfAKey) {
  const auto first = this->location.open(0);
  const auto second = this->location.open(1);
  first->set("a", "1");
  second->set("b", std::string("\0binary\n", 8));
  second->set("a", "2");
  second->set("empty", "");
  for (dist::Store* store : {first.get(), second.get()}) {
    EXPECT_EQ(store->get("a", dist::Deadline(kPatience)), "1");
    EXPECT_EQ(store->get("b", dist::Deadline(0)), std::string("\0binary\n", 8));
    EXPECT_EQ(store->get("empty", dist::Deadline(0)), "");
    EXPECT_EQ(store->get("c", dist::Deadline(0)), std::nullopt);
  }
}

TYPED_TEST(Stores, WaitForAKey) {
  const auto first = this->location.open(0);
  const auto second = this->location.open(1);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    first->set("late", "here");
  });
  EXPECT_EQ(second->get("late", dist::Deadline(kPatience)), "here");
  later.join();
  const double waited =
      seconds_of([&] { EXPECT_EQ(second->get("never", dist::Deadline(0.3)), std::nullopt); });
  EXPECT_GE(waited, 0.29);
  EXPECT_LT(waited, kAtOnce);
}

TYPED_TEST(Stores, AreThreadSafe) {
  const auto first = this->location.open(0);
  const auto second = this->location.open(1);
  std::vector<std::thread> threads;
  std::atomic<int> found = 0;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&, i] {
      dist::Store& local = i % 2 == 0 ? *first : *second;
      for (int round = 0; round < 10; ++round) {
        local.set(std::to_string(round) + "/" + std::to_string(i), std::to_string(i * round));
        const int other = (i + 1) % 6;
        const auto value =
            local.get(std::to_string(round) + "/" + std::to_string(other), dist::Deadline(kPatience));
        found += value == std::to_string(other * round) ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, 60);
}

TYPED_TEST(Stores, LimitTheLengthOfKeysAndValues) {
  const auto first = this->location.open(0);
  const auto second = this->location.open(1);
  const std::string longest(dist::StoreFrame::kMaxValueBytes, 'x');
  first->set("long", longest);
  EXPECT_EQ(second->get("long", dist::Deadline(kPatience)), longest);
  EXPECT_THAT(message_of<UsageError>([&] { first->set("longer", longest + "x"); }),
              HasSubstr("at most 1024 bytes and 1048576 bytes"));
  EXPECT_THROW(first->set(std::string(2000, 'k'), "x"), UsageError);
  EXPECT_EQ(second->get("long", dist::Deadline(kPatience)), longest);
}

TYPED_TEST(Stores, RefuseSecondProcessWithSameRank) {
  const auto first = this->location.open(0, 3);
  const auto second = this->location.open(1, 3);
  const double seconds = seconds_of([&] {
    EXPECT_THAT(message_of<PeerError>([&] { this->location.open(1, 3); }),
                HasSubstr("a rank 1 has already joined"));
  });
  EXPECT_LT(seconds, kAtOnce);
  this->location.open(2, 3)->set("a", "1");
  EXPECT_EQ(second->get("a", dist::Deadline(kPatience)), "1");
}

TYPED_TEST(Stores, RefuseAnotherJob) {
  const auto first = this->location.open(0);
  EXPECT_THAT(message_of<PeerError>([&] {
                this->location.open_as({1, 2, "other"}, kPatience);
              }),
              HasSubstr("belongs to job 'job', not 'other'"));
  EXPECT_THAT(message_of<PeerError>([&] { this->location.open(1, 3); }),
              HasSubstr("rank 0 has a world size of 2, rank 1 of 3"));
}

TYPED_TEST(Stores, RefuseASecondRank0) {
  const auto first = this->location.open(0);
  EXPECT_THAT(
      message_of<UsageError>([&] { this->location.open(0); }),
      ::testing::AnyOf(HasSubstr("is in use; choose another port"), HasSubstr("another job uses the file")));
  this->location.open(1)->set("a", "1");
  EXPECT_EQ(first->get("a", dist::Deadline(kPatience)), "1");
}

TYPED_TEST(Stores, WaitForRank0) {
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    this->location.open(0)->get("done", dist::Deadline(kPatience));
  });
  this->location.open(1)->set("done", "");
  late.join();
}

TYPED_TEST(Stores, ReportLocationWhenRank0IsMissing) {
  const double seconds = seconds_of([&] {
    EXPECT_THAT(message_of<PeerError>([&] {
                  this->location.open_as({1, 2, "job"}, 0.4);
                }),
                HasSubstr("rank 1 waited 0.4 s for rank 0 at "));
  });
  EXPECT_LT(seconds, kAtOnce);
}

TYPED_TEST(Stores, ReportExitOfRank0) {
  auto first = this->location.open(0);
  const auto second = this->location.open(1);
  second->set("a", "1");
  std::thread leaving([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    first.reset();
  });
  const double seconds = seconds_of([&] {
    EXPECT_THAT(message_of<PeerError>([&] { second->get("b", dist::Deadline(kPatience)); }),
                HasSubstr("rank 0 has exited"));
    EXPECT_THROW(second->get("b", dist::Deadline(kPatience)), PeerError);
  });
  leaving.join();
  EXPECT_LT(seconds, kAtOnce);
}

TYPED_TEST(Stores, StayAvailableUntilAllRanksDisconnect) {
  // Rank 0 waits one second for the other ranks, less if all of them have disconnected.
  constexpr double kShutdownWait = 0.95;
  bool answered = false, at_once = false;
  for (int tries = 0; tries < kTries && !(answered && at_once); ++tries) {
    auto first = this->location.open(0);
    auto second = this->location.open(1);
    first->set("last", "word");
    std::thread leaving;
    const double seconds = seconds_of([&] {
      leaving = std::thread([&] { first.reset(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      try {
        answered = second->get("last", dist::Deadline(1)) == "word";
      } catch (const PeerError&) {  // rank 0 has exited
        answered = false;
      }
      second.reset();
      leaving.join();
    });
    at_once = seconds < kShutdownWait;
    const auto next = this->location.open(0);  // the location can be used again
  }
  EXPECT_TRUE(answered);
  EXPECT_TRUE(at_once);
}

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
  std::vector<std::unique_ptr<dist::Store>> ranks;
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

class TcpStoreUntrustedClients : public ::testing::Test {
 protected:
  TcpLocation location;
  std::unique_ptr<dist::Store> first = location.open(0);
  std::unique_ptr<dist::Store> second = location.open(1);

  // Seconds after which the server disconnects clients that have not sent a hello message.
  static constexpr double kHelloTimeout = 5;

  /// Checks that the ranks of the job can still exchange values.
  void expect_to_work(const std::string& key) {
    first->set(key, "1");
    EXPECT_EQ(second->get(key, dist::Deadline(kPatience)), "1");
  }

  /// Returns whether the server disconnects a client that sends these bytes, before the hello timeout.
  bool is_disconnected_after(const std::string& bytes) const {
    for (int tries = 0; tries < kTries; ++tries) {
      const dist::Socket client = connect_raw(location.endpoint);
      dist::send_all(client, bytes, dist::Deadline(1));
      if (is_disconnected(client, 0.8 * kHelloTimeout)) return true;
    }
    return false;
  }
};

TEST_F(TcpStoreUntrustedClients, AreDisconnectedAfterInvalidData) {
  const std::string hello = dist::StoreFrame{dist::StoreFrame::Kind::hello, "job", "1 2 x"}.bytes();
  std::string endless = dist::StoreFrame{dist::StoreFrame::Kind::set, "k", "v"}.bytes();
  endless[10] = endless[11] = endless[12] = '\x7f';  // the value's length
  const std::string long_hello =
      dist::StoreFrame{dist::StoreFrame::Kind::hello, "job", std::string(5000, ' ')}.bytes();
  const std::string set_before_hello = dist::StoreFrame{dist::StoreFrame::Kind::set, "a", "stolen"}.bytes();
  std::string other_kind = hello;
  other_kind[5] = '\x63';
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("SSH-2.0-x\r\n"), std::string(100000, '\0'),
        endless, set_before_hello, other_kind, hello + hello, std::string("CVOY2"),
        dist::StoreFrame{dist::StoreFrame::Kind::ok, "", ""}.bytes()})
    EXPECT_TRUE(is_disconnected_after(garbage)) << garbage.substr(0, 20);
  EXPECT_EQ(first->get("a", dist::Deadline(0)), std::nullopt);
  expect_to_work("after garbage");
}

TEST_F(TcpStoreUntrustedClients, CannotDisturbWithRandomBytes) {
  std::mt19937 random(7);
  const std::string hello = dist::StoreFrame{dist::StoreFrame::Kind::hello, "job", "1 2 x"}.bytes();
  for (int i = 0; i < 200; ++i) {
    std::string bytes = hello;
    for (int flips = 0; flips < 3; ++flips) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    const dist::Socket client = connect_raw(location.endpoint);
    dist::send_all(client, bytes, dist::Deadline(1));
  }
  expect_to_work("after random bytes");
}

TEST_F(TcpStoreUntrustedClients, CannotBlockOthersBySilence) {
  double seconds = kHelloTimeout;
  for (int tries = 0; tries < kTries && seconds >= 0.8 * kHelloTimeout; ++tries) {
    std::vector<dist::Socket> silent;
    seconds = seconds_of([&] {
      for (int i = 0; i < 200; ++i) silent.push_back(connect_raw(location.endpoint));
      expect_to_work("with silent clients, " + std::to_string(tries));
      EXPECT_TRUE(is_disconnected(silent.front(), kPatience));  // the server closes the oldest first
    });
    EXPECT_TRUE(is_disconnected(silent.back(), kPatience));  // the others after the timeout
  }
  EXPECT_LT(seconds, 0.8 * kHelloTimeout);
  expect_to_work("after the silent");
}

TEST_F(TcpStoreUntrustedClients, MaySendSlowly) {
  const dist::Socket slow = connect_raw(location.endpoint);
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
  const dist::Socket client = connect_raw(location.endpoint);
  dist::send_all(client, hello, dist::Deadline(1));
  std::string answer;
  ASSERT_TRUE(dist::receive_some(client, answer, dist::Deadline(kPatience)));
  EXPECT_THAT(answer, HasSubstr("a rank 1 has already joined"));
  EXPECT_TRUE(is_disconnected_after(hello));
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
    second.set("a", host);
    EXPECT_EQ(first.get("a", dist::Deadline(kPatience)), host);
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

TEST(StoreFrames, AreParsedIncrementally) {
  const dist::StoreFrame frame{dist::StoreFrame::Kind::value, "key", std::string("a\0b", 3)};
  const std::string two = frame.bytes() + frame.bytes();
  std::string bytes;
  int found = 0;
  for (const char c : two) {
    bytes += c;
    while (const std::optional<dist::StoreFrame> next = dist::take_frame(bytes)) {
      ++found;
      EXPECT_EQ(next->key, "key");
      EXPECT_EQ(next->value, frame.value);
      EXPECT_EQ(next->kind, frame.kind);
    }
  }
  EXPECT_EQ(found, 2);
  EXPECT_TRUE(bytes.empty());
}

}  // namespace
}  // namespace convoy::testing

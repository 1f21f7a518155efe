// Stores by themselves: what they keep, whom they refuse, and what strangers can do to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "comm/file_lock.h"
#include "comm/file_store.h"
#include "comm/tcp_store.h"
#include "kernels/runtime/error.h"
#include "tests/comm/store_places.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kAtOnce = 20;  // far more than it takes, far less than that
constexpr int kTries = 4;       // where a machine that is busy elsewhere for seconds spoils one

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

template <class P>
class Stores : public ::testing::Test {
 protected:
  P place;
};
using Places = ::testing::Types<TcpPlace, FilePlace>;
TYPED_TEST_SUITE(Stores, Places);

TYPED_TEST(Stores, KeepTheFirstValueOfAKey) {
  const auto first = this->place.open(0);
  const auto second = this->place.open(1);
  first->set("a", "1");
  second->set("b", std::string("\0binary\n", 8));
  second->set("a", "2");
  second->set("empty", "");
  for (Store* store : {first.get(), second.get()}) {
    EXPECT_EQ(store->get("a", Deadline(kPatience)), "1");
    EXPECT_EQ(store->get("b", Deadline(0)), std::string("\0binary\n", 8));
    EXPECT_EQ(store->get("empty", Deadline(0)), "");
    EXPECT_EQ(store->get("c", Deadline(0)), std::nullopt);
  }
}

TYPED_TEST(Stores, WaitForAKey) {
  const auto first = this->place.open(0);
  const auto second = this->place.open(1);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    first->set("late", "here");
  });
  EXPECT_EQ(second->get("late", Deadline(kPatience)), "here");
  later.join();
  const double waited = seconds_of([&] { EXPECT_EQ(second->get("never", Deadline(0.3)), std::nullopt); });
  EXPECT_GE(waited, 0.29);
  EXPECT_LT(waited, kAtOnce);
}

TYPED_TEST(Stores, MayBeUsedByManyThreads) {
  const auto first = this->place.open(0);
  const auto second = this->place.open(1);
  std::vector<std::thread> threads;
  std::atomic<int> found = 0;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&, i] {
      Store& mine = i % 2 == 0 ? *first : *second;
      for (int round = 0; round < 10; ++round) {
        mine.set(std::to_string(round) + "/" + std::to_string(i), std::to_string(i * round));
        const int other = (i + 1) % 6;
        const auto value = mine.get(std::to_string(round) + "/" + std::to_string(other), Deadline(kPatience));
        found += value == std::to_string(other * round) ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, 60);
}

TYPED_TEST(Stores, TakeLongValuesAndRefuseEndlessOnes) {
  const auto first = this->place.open(0);
  const auto second = this->place.open(1);
  const std::string longest(StoreFrame::kLongestValue, 'x');
  first->set("long", longest);
  EXPECT_EQ(second->get("long", Deadline(kPatience)), longest);
  EXPECT_THAT(message_of<UsageError>([&] { first->set("longer", longest + "x"); }),
              HasSubstr("1048576 bytes"));
  EXPECT_THROW(first->set(std::string(2000, 'k'), "x"), UsageError);
  EXPECT_EQ(second->get("long", Deadline(kPatience)), longest);
}

TYPED_TEST(Stores, RefuseASecondProcessOfARank) {
  const auto first = this->place.open(0, 3);
  const auto second = this->place.open(1, 3);
  const double seconds = seconds_of([&] {
    EXPECT_THAT(message_of<PeerError>([&] { this->place.open(1, 3); }),
                HasSubstr("a rank 1 has come already"));
  });
  EXPECT_LT(seconds, kAtOnce);
  this->place.open(2, 3)->set("a", "1");
  EXPECT_EQ(second->get("a", Deadline(kPatience)), "1");
}

TYPED_TEST(Stores, RefuseAnotherJob) {
  const auto first = this->place.open(0);
  EXPECT_THAT(message_of<PeerError>([&] {
                this->place.open_as({1, 2, "other"}, kPatience);
              }),
              HasSubstr("this is job 'job', not 'other'"));
  EXPECT_THAT(message_of<PeerError>([&] { this->place.open(1, 3); }),
              HasSubstr("waits for 2 ranks, rank 1 for 3"));
}

TYPED_TEST(Stores, RefuseASecondRank0) {
  const auto first = this->place.open(0);
  EXPECT_THAT(message_of<UsageError>([&] { this->place.open(0); }),
              ::testing::AnyOf(HasSubstr("is in use: choose another"), HasSubstr("another job meets there")));
  this->place.open(1)->set("a", "1");
  EXPECT_EQ(first->get("a", Deadline(kPatience)), "1");
}

TYPED_TEST(Stores, WaitForRank0) {
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    this->place.open(0)->get("done", Deadline(kPatience));
  });
  this->place.open(1)->set("done", "");
  late.join();
}

TYPED_TEST(Stores, SayWhereRank0DidNotCome) {
  const double seconds = seconds_of([&] {
    EXPECT_THAT(message_of<PeerError>([&] {
                  this->place.open_as({1, 2, "job"}, 0.4);
                }),
                HasSubstr("rank 1 waited 0.4 s for rank 0 at "));
  });
  EXPECT_LT(seconds, kAtOnce);
}

TYPED_TEST(Stores, SayThatRank0HasGone) {
  auto first = this->place.open(0);
  const auto second = this->place.open(1);
  second->set("a", "1");
  std::thread leaving([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    first.reset();
  });
  const double seconds = seconds_of([&] {
    EXPECT_THAT(message_of<PeerError>([&] { second->get("b", Deadline(kPatience)); }),
                HasSubstr("rank 0 has gone"));
    EXPECT_THROW(second->get("b", Deadline(kPatience)), PeerError);
  });
  leaving.join();
  EXPECT_LT(seconds, kAtOnce);
}

TYPED_TEST(Stores, AreThereUntilAllHaveLeft) {
  // Rank 0 waits for the others, but no longer than a second; nor so long where all have left.
  constexpr double kFarewell = 0.95;
  bool told = false, at_once = false;
  for (int tries = 0; tries < kTries && !(told && at_once); ++tries) {
    auto first = this->place.open(0);
    auto second = this->place.open(1);
    first->set("last", "word");
    std::thread leaving;
    const double seconds = seconds_of([&] {
      leaving = std::thread([&] { first.reset(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      try {
        told = second->get("last", Deadline(1)) == "word";
      } catch (const PeerError&) {  // too late
        told = false;
      }
      second.reset();
      leaving.join();
    });
    at_once = seconds < kFarewell;
    const auto next = this->place.open(0);  // and the place is free
  }
  EXPECT_TRUE(told);
  EXPECT_TRUE(at_once);
}

Socket connect_raw(const Endpoint& endpoint) {
  std::string reason;
  return std::move(*try_connect(endpoint, Deadline(5), reason));
}

/// Whether the other side ends the connection within that time.
bool is_hung_up_on(const Socket& socket, double seconds) {
  std::string bytes;
  const Deadline deadline(seconds);
  while (receive_some(socket, bytes, deadline)) bytes.clear();
  return !deadline.passed();
}

class TcpStoreStrangers : public ::testing::Test {
 protected:
  TcpPlace place;
  std::unique_ptr<Store> first = place.open(0);
  std::unique_ptr<Store> second = place.open(1);

  static constexpr double kSilence = 5;  // seconds, after which who has not said hello is hung up on

  void expect_to_work(const std::string& key) {
    first->set(key, "1");
    EXPECT_EQ(second->get(key, Deadline(kPatience)), "1");
  }

  /// Not for silence: before its time is up.
  bool is_hung_up_on_for(const std::string& bytes) const {
    for (int tries = 0; tries < kTries; ++tries) {
      const Socket stranger = connect_raw(place.endpoint);
      send_all(stranger, bytes, Deadline(1));
      if (is_hung_up_on(stranger, 0.8 * kSilence)) return true;
    }
    return false;
  }
};

TEST_F(TcpStoreStrangers, WithGarbageAreHungUpOn) {
  const std::string hello = StoreFrame{StoreFrame::Kind::hello, "job", "1 2 x"}.bytes();
  std::string endless = StoreFrame{StoreFrame::Kind::set, "k", "v"}.bytes();
  endless[10] = endless[11] = endless[12] = '\x7f';  // the value's length
  const std::string long_hello = StoreFrame{StoreFrame::Kind::hello, "job", std::string(5000, ' ')}.bytes();
  const std::string set_before_hello = StoreFrame{StoreFrame::Kind::set, "a", "stolen"}.bytes();
  std::string other_kind = hello;
  other_kind[5] = '\x63';
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("SSH-2.0-x\r\n"), std::string(100000, '\0'),
        endless, set_before_hello, other_kind, hello + hello, std::string("CVOY2"),
        StoreFrame{StoreFrame::Kind::ok, "", ""}.bytes()})
    EXPECT_TRUE(is_hung_up_on_for(garbage)) << garbage.substr(0, 20);
  EXPECT_EQ(first->get("a", Deadline(0)), std::nullopt);
  expect_to_work("after garbage");
}

TEST_F(TcpStoreStrangers, WithRandomBytesDoNoHarm) {
  std::mt19937 random(7);
  const std::string hello = StoreFrame{StoreFrame::Kind::hello, "job", "1 2 x"}.bytes();
  for (int i = 0; i < 200; ++i) {
    std::string bytes = hello;
    for (int flips = 0; flips < 3; ++flips) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    const Socket stranger = connect_raw(place.endpoint);
    send_all(stranger, bytes, Deadline(1));
  }
  expect_to_work("after random bytes");
}

TEST_F(TcpStoreStrangers, ThatSayNothingHoldUpNobody) {
  double seconds = kSilence;
  for (int tries = 0; tries < kTries && seconds >= 0.8 * kSilence; ++tries) {
    std::vector<Socket> silent;
    seconds = seconds_of([&] {
      for (int i = 0; i < 200; ++i) silent.push_back(connect_raw(place.endpoint));
      expect_to_work("beside the silent, " + std::to_string(tries));
      EXPECT_TRUE(is_hung_up_on(silent.front(), kPatience));  // the oldest make room
    });
    EXPECT_TRUE(is_hung_up_on(silent.back(), kPatience));  // and the others have their time
  }
  EXPECT_LT(seconds, 0.8 * kSilence);
  expect_to_work("after the silent");
}

TEST_F(TcpStoreStrangers, MaySpeakSlowly) {
  const Socket slow = connect_raw(place.endpoint);
  const std::string hello = StoreFrame{StoreFrame::Kind::hello, "other job", "1 2 x"}.bytes();
  for (std::size_t i = 0; i + 1 < hello.size(); ++i) {
    send_all(slow, hello.substr(i, 1), Deadline(1));
    if (i == 10) expect_to_work("amid a slow hello");
  }
  send_all(slow, hello.substr(hello.size() - 1), Deadline(1));
  std::string answer;
  ASSERT_TRUE(receive_some(slow, answer, Deadline(kPatience)));
  EXPECT_THAT(answer, HasSubstr("this is job 'job'"));
}

TEST_F(TcpStoreStrangers, OfARankAreFew) {
  std::vector<Socket> connections;
  const std::string hello = StoreFrame{StoreFrame::Kind::hello, "job", "1 2 x"}.bytes();
  const Socket stranger = connect_raw(place.endpoint);
  send_all(stranger, hello, Deadline(1));
  std::string answer;
  ASSERT_TRUE(receive_some(stranger, answer, Deadline(kPatience)));
  EXPECT_THAT(answer, HasSubstr("a rank 1 has come already"));
  EXPECT_TRUE(is_hung_up_on_for(hello));
}

TEST(TcpStore, ListensWhereItIsTold) {
  for (const char* host : {"127.0.0.1", "localhost", "::1"}) {
    const Endpoint endpoint{host, free_port()};
    try {
      listen_at(endpoint);
    } catch (const UsageError&) {
      continue;  // a machine without IPv6
    }
    TcpStore first(endpoint, {0, 2, ""}, Deadline(kPatience));
    TcpStore second(endpoint, {1, 2, ""}, Deadline(kPatience));
    second.set("a", host);
    EXPECT_EQ(first.get("a", Deadline(kPatience)), host);
    EXPECT_EQ(second.address_of_rank_0(), std::string(host) == "localhost" ? second.local_address() : host);
  }
}

TEST(TcpStore, SaysThatAnotherProgramHasThePort) {
  const Endpoint endpoint{"127.0.0.1", free_port()};
  const Socket other = listen_at(endpoint);
  EXPECT_THAT(message_of<UsageError>([&] {
                TcpStore(endpoint, {0, 2, ""}, Deadline(kPatience));
              }),
              HasSubstr("of this host is in use: choose another"));
  std::thread answering([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Socket client;
    while (!client) client = Socket(accept(other.descriptor(), nullptr, nullptr));
    send_all(client, "220 smtp.example ready\r\n", Deadline(1));
  });
  EXPECT_THAT(message_of<PeerError>([&] {
                TcpStore(endpoint, {1, 2, ""}, Deadline(kPatience));
              }),
              HasSubstr("is no rendezvous; another program has the port"));
  answering.join();
}

TEST(TcpStore, SaysWhyNobodyIsReached) {
  const auto error_of = [](const Endpoint& endpoint) {
    return message_of<PeerError>([&] { TcpStore(endpoint, {1, 2, ""}, Deadline(0.3)); });
  };
  EXPECT_THAT(error_of({"127.0.0.1", free_port()}), HasSubstr("Connection refused"));
  EXPECT_THAT(error_of({"no-such-host.invalid", 1}), HasSubstr("no-such-host.invalid"));
}

TEST(StoreFrames, AreReadAsTheyCome) {
  const StoreFrame frame{StoreFrame::Kind::value, "key", std::string("a\0b", 3)};
  const std::string two = frame.bytes() + frame.bytes();
  std::string bytes;
  int found = 0;
  for (const char c : two) {
    bytes += c;
    while (const std::optional<StoreFrame> next = take_frame(bytes)) {
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

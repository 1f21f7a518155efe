// Tests of the connections between ranks. The ranks are threads of the test process.
#include "convoy/comm/cluster/net/peer_connector.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "convoy/comm/cluster/net/network_interfaces.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

using dist::PeerConnector;
using ::testing::HasSubstr;

/// Runs `body` on threads, each with a connector.
class ConnectedRanks {
 public:
  explicit ConnectedRanks(int ranks) : texts_(static_cast<std::size_t>(ranks)), all_are_here_(ranks) {}

  void run(const std::function<void(int rank, PeerConnector&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < static_cast<int>(texts_.size()); ++rank)
      threads.emplace_back([this, rank, &body] {
        const auto exchange = [&](const std::string& local) {
          texts_[static_cast<std::size_t>(rank)] = local;
          all_are_here_.arrive_and_wait();
          return texts_;
        };
        PeerConnector connector(
            {.rank = rank, .node_of_rank = std::vector<int>(texts_.size()), .address = ""}, exchange);
        body(rank, connector);
      });
    for (std::thread& thread : threads) thread.join();
  }

  /// Returns the port of a rank.
  int port_of(int rank) const {
    const std::string& text = texts_[static_cast<std::size_t>(rank)];
    return std::stoi(text.substr(text.find(' ') + 1));
  }

 private:
  std::vector<std::string> texts_;
  std::barrier<> all_are_here_;
};

std::vector<int> ranks_from(int first, int end) {
  std::vector<int> ranks;
  for (int rank = first; rank < end; ++rank) ranks.push_back(rank);
  return ranks;
}

/// Sends a text to each other rank and expects the same from each.
void expect_to_talk(const std::map<int, PeerConnector::Connection>& connections, const std::string& text) {
  for (const auto& [other, connection] : connections)
    EXPECT_TRUE(dist::send_all(connection.socket, text, dist::Deadline(20)));
  for (const auto& [other, connection] : connections) {
    std::string bytes = connection.received;
    while (bytes.size() < text.size())
      ASSERT_TRUE(dist::receive_some(connection.socket, bytes, dist::Deadline(20))) << "rank " << other;
    EXPECT_EQ(bytes, text);
  }
}

TEST(PeerConnector, ConnectsAllRanks) {
  constexpr int kRanks = 6;
  ConnectedRanks(kRanks).run([](int rank, PeerConnector& connector) {
    for (const char* group : {"one", "two"}) {
      const auto connections =
          connector.connect(group, ranks_from(0, rank), ranks_from(rank + 1, kRanks), dist::Deadline(20));
      EXPECT_EQ(connections.size(), 5u);
      expect_to_talk(connections, fmt::format("group {}", group));
    }
  });
}

/// The ranks connect their groups in different orders, on two threads each.
TEST(PeerConnector, ConnectsGroupsAtTheSameTime) {
  constexpr int kRanks = 4;
  ConnectedRanks(kRanks).run([](int rank, PeerConnector& connector) {
    const auto connect = [&](const std::string& group) {
      expect_to_talk(
          connector.connect(group, ranks_from(0, rank), ranks_from(rank + 1, kRanks), dist::Deadline(20)),
          group);
    };
    for (int round = 0; round < 20; ++round) {
      std::thread other([&] { connect(fmt::format("a{}", round)); });
      if (rank % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      connect(fmt::format("b{}", round));
      other.join();
    }
  });
}

TEST(PeerConnector, NamesMissingRanks) {
  ConnectedRanks(3).run([](int rank, PeerConnector& connector) {
    if (rank == 1) return;
    const std::string error = message_of<PeerError>(
        [&] { connector.connect("all", ranks_from(0, rank), ranks_from(rank + 1, 3), dist::Deadline(1.5)); });
    EXPECT_THAT(error, HasSubstr(rank == 0 ? "rank 0 waited 1.5 s for a TCP connection of rank 1"
                                           : "rank 2 cannot reach rank 1 by TCP after 1.5 s: 127.0.0.1:"));
  });
}

TEST(PeerConnector, EndsWhenThePollFunctionThrows) {
  ConnectedRanks(2).run([](int rank, PeerConnector& connector) {
    const auto stop = [] { throw PeerError("stop"); };
    if (rank == 0) {
      EXPECT_EQ(message_of<PeerError>(
                    [&] { connector.connect("all", {}, ranks_from(1, 2), dist::Deadline(20), stop); }),
                "stop");
    }
  });
}

/// A rank without the secret of the others gets no connection: here one that has another random number of rank 0.
TEST(PeerConnector, RefusesARankOfAnotherJob) {
  std::vector<std::string> texts(2);
  std::barrier all_are_here(2);
  const auto run = [&](int rank) {
    const auto exchange = [&](const std::string& local) {
      texts[static_cast<std::size_t>(rank)] = local;
      all_are_here.arrive_and_wait();
      std::vector<std::string> seen = texts;
      if (rank == 1) seen[0][0] = seen[0][0] == '0' ? '1' : '0';
      return seen;
    };
    PeerConnector connector({.rank = rank, .node_of_rank = {0, 0}, .address = ""}, exchange);
    const std::string error = message_of<PeerError>(
        [&] { connector.connect("all", ranks_from(0, rank), ranks_from(rank + 1, 2), dist::Deadline(1)); });
    EXPECT_THAT(error, HasSubstr(rank == 0 ? "rank 0 waited 1 s for a TCP connection of rank 1"
                                           : "it does not know the secret of the job"));
    all_are_here.arrive_and_wait();
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
}

TEST(PeerConnector, IgnoresStrangers) {
  ConnectedRanks ranks(2);
  std::vector<dist::Socket> strangers;
  ranks.run([&](int rank, PeerConnector& connector) {
    if (rank == 1) {
      for (int i = 0; i < 200; ++i) {
        std::string reason;
        auto socket = dist::try_connect({"127.0.0.1", ranks.port_of(0)}, dist::Deadline(20), reason);
        ASSERT_TRUE(socket) << reason;
        if (i % 3 != 0)
          dist::send_all(*socket, i % 3 == 1 ? "SSH-2.0-x\r\n" : std::string(50, '\0'), dist::Deadline(1));
        strangers.push_back(std::move(*socket));
      }
    }
    expect_to_talk(connector.connect("all", ranks_from(0, rank), ranks_from(rank + 1, 2), dist::Deadline(20)),
                   "hello");
  });
}

/// A rank that claims the place of another one is told which rank it has reached.
TEST(PeerConnector, RefusesAConnectionForAnotherRank) {
  std::vector<std::string> texts(3);
  std::barrier all_are_here(3);
  const auto run = [&](int rank) {
    const auto exchange = [&](const std::string& local) {
      texts[static_cast<std::size_t>(rank)] = local;
      all_are_here.arrive_and_wait();
      std::vector<std::string> seen = texts;
      const std::string number = seen[1].substr(0, seen[1].find(' '));
      if (rank == 2) seen[1] = number + seen[0].substr(seen[0].find(' '));  // the address of rank 0
      return seen;
    };
    PeerConnector connector({.rank = rank, .node_of_rank = {0, 0, 0}, .address = ""}, exchange);
    if (rank == 2) {
      EXPECT_THAT(
          message_of<PeerError>([&] { connector.connect("all", ranks_from(1, 2), {}, dist::Deadline(1)); }),
          HasSubstr("this is rank 0"));
    }
    if (rank == 0) {
      EXPECT_THROW(connector.connect("all", {}, ranks_from(2, 3), dist::Deadline(1.5)), PeerError);
    }
    all_are_here.arrive_and_wait();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
}

TEST(PeerConnector, ListensOnTheLoopbackInterfaceOfOneHost) {
  ConnectedRanks ranks(2);
  ranks.run([&](int rank, PeerConnector&) {
    if (rank != 0) return;
    const std::vector<std::string> addresses = dist::addresses_of_this_host();
    std::string reason;
    for (const std::string& address : addresses)
      EXPECT_FALSE(dist::try_connect({address, ranks.port_of(0)}, dist::Deadline(2), reason)) << address;
  });
}

TEST(NetworkInterfaces, AreChosenByName) {
  unsetenv(dist::kInterfaceVariable);
  EXPECT_EQ(dist::address_of_chosen_interface(), std::nullopt);
  setenv(dist::kInterfaceVariable, "lo", 1);
  EXPECT_EQ(dist::address_of_chosen_interface(), "127.0.0.1");
  setenv(dist::kInterfaceVariable, "nosuch", 1);
  EXPECT_THAT(
      message_of<UsageError>([] { dist::address_of_chosen_interface(); }),
      HasSubstr("CONVOY_INTERFACE: found 'nosuch', which has no address on this host; expected one of "));
  unsetenv(dist::kInterfaceVariable);
}

TEST(PeerConnector, SaysThatDescriptorsAreUsedUp) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  ConnectedRanks ranks(2);
  ranks.run([&](int rank, PeerConnector& connector) {
    if (rank == 1) return;
    std::string reason;
    const auto client = dist::try_connect({"127.0.0.1", ranks.port_of(0)}, dist::Deadline(20), reason);
    ASSERT_TRUE(client) << reason;
    std::vector<int> used;
    const rlimit few{64, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int next = dup(0); next >= 0; next = dup(0)) used.push_back(next);
    EXPECT_THAT(
        message_of<PeerError>([&] { connector.connect("all", {}, ranks_from(1, 2), dist::Deadline(0.3)); }),
        HasSubstr(
            "rank 0 waited 0.3 s for a TCP connection of rank 1; it cannot accept connections: all file "
            "descriptors are in use; raise the limit with ulimit -n"));
    for (const int descriptor : used) close(descriptor);
    setrlimit(RLIMIT_NOFILE, &before);
  });
}

}  // namespace
}  // namespace convoy::testing

// Tests of the connections between ranks. The ranks are threads of the test process.
#include "convoy/comm/cluster/net/peer_connector.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "convoy/comm/bootstrap/thread_rendezvous.h"
#include "convoy/comm/cluster/net/network_interfaces.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/kernels/base/error.h"
#include "tests/comm/cluster/connection_flood.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

using dist::PeerConnector;
using ::testing::HasSubstr;

/// A rendezvous of threads that keeps what the connectors have exchanged, after `change`.
class Overheard final : public dist::Rendezvous {
 public:
  using Change = std::function<void(int rank, std::vector<std::string>& texts)>;
  Overheard(std::unique_ptr<dist::Rendezvous> threads, const Change& change)
      : Rendezvous(threads->note()), threads_(std::move(threads)), change_(change) {
    set_positions(threads_->info().rank, threads_->all());
  }
  std::vector<std::string> all_gather(const std::string& local) override {
    std::vector<std::string> texts = threads_->all_gather(local);
    if (!texts_.empty()) return texts;  // of a barrier
    if (change_) change_(info().rank, texts);
    return texts_ = texts;
  }
  /// Returns the port of a rank's connector.
  int port_of(std::size_t rank) const { return std::stoi(texts_[rank].substr(texts_[rank].find(' ') + 1)); }

 private:
  std::unique_ptr<dist::Rendezvous> threads_;
  const Change& change_;
  std::vector<std::string> texts_;
};

/// Runs `body` on threads, each with a connector. `change` may falsify what a rank learns of the others.
void run_ranks(int ranks, const std::function<void(int rank, PeerConnector&, const Overheard&)>& body,
               const Overheard::Change& change = {}) {
  std::vector<std::thread> threads;
  for (auto& of_rank : dist::rendezvous_in_threads(ranks, 30))
    threads.emplace_back([&, of_rank = std::move(of_rank)]() mutable {
      Overheard rendezvous(std::move(of_rank), change);
      PeerConnector connector(rendezvous);
      body(rendezvous.info().rank, connector, rendezvous);
      rendezvous.barrier();
    });
  for (std::thread& thread : threads) thread.join();
}

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
  run_ranks(kRanks, [](int rank, PeerConnector& connector, const Overheard&) {
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
  run_ranks(kRanks, [](int rank, PeerConnector& connector, const Overheard&) {
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

/// Otherwise rank 2 would name rank 1, and not rank 0, for which both wait.
TEST(PeerConnector, ARankThatConnectsAnswersTheOthers) {
  run_ranks(3, [](int rank, PeerConnector& connector, const Overheard&) {
    if (rank == 0) return;  // is silent, but listens
    const std::string error = message_of<PeerError>([&] {
      connector.connect("all", rank == 1 ? std::vector<int>{0} : std::vector<int>{1, 0},
                        ranks_from(rank + 1, 3), dist::Deadline(1.5));
    });
    EXPECT_THAT(error,
                HasSubstr(fmt::format("rank {} cannot reach rank 0 by TCP after 1.5 s: 127.0.0.1:", rank)));
  });
}

TEST(PeerConnector, NamesMissingRanks) {
  run_ranks(3, [](int rank, PeerConnector& connector, const Overheard&) {
    if (rank == 1) return;
    const std::string error = message_of<PeerError>(
        [&] { connector.connect("all", ranks_from(0, rank), ranks_from(rank + 1, 3), dist::Deadline(1.5)); });
    EXPECT_THAT(error, HasSubstr(rank == 0 ? "rank 0 waited 1.5 s for a TCP connection of rank 1"
                                           : "rank 2 cannot reach rank 1 by TCP after 1.5 s: 127.0.0.1:"));
  });
}

TEST(PeerConnector, EndsWhenThePollFunctionThrows) {
  run_ranks(2, [](int rank, PeerConnector& connector, const Overheard&) {
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
  const auto connect = [](int rank, PeerConnector& connector, const Overheard&) {
    const std::string error = message_of<PeerError>(
        [&] { connector.connect("all", ranks_from(0, rank), ranks_from(rank + 1, 2), dist::Deadline(1)); });
    EXPECT_THAT(error, HasSubstr(rank == 0 ? "rank 0 waited 1 s for a TCP connection of rank 1"
                                           : "it does not know the secret of the job"));
  };
  run_ranks(2, connect, [](int rank, std::vector<std::string>& texts) {
    if (rank == 1) texts[0][0] = texts[0][0] == '0' ? '1' : '0';
  });
}

TEST(PeerConnector, IgnoresStrangers) {
  std::vector<dist::Socket> strangers;
  run_ranks(2, [&](int rank, PeerConnector& connector, const Overheard& ranks) {
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
  const auto connect = [](int rank, PeerConnector& connector, const Overheard&) {
    if (rank == 2) {
      EXPECT_THAT(
          message_of<PeerError>([&] { connector.connect("all", ranks_from(1, 2), {}, dist::Deadline(1)); }),
          HasSubstr("this is rank 0"));
    }
    if (rank == 0) {
      EXPECT_THROW(connector.connect("all", {}, ranks_from(2, 3), dist::Deadline(1.5)), PeerError);
    }
  };
  run_ranks(3, connect, [](int rank, std::vector<std::string>& texts) {
    const std::string number = texts[1].substr(0, texts[1].find(' '));
    if (rank == 2) texts[1] = number + texts[0].substr(texts[0].find(' '));  // the address of rank 0
  });
}

TEST(PeerConnector, ListensOnTheLoopbackInterfaceOfOneHost) {
  run_ranks(2, [&](int rank, PeerConnector&, const Overheard& ranks) {
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
  run_ranks(2, [&](int rank, PeerConnector& connector, const Overheard& ranks) {
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

/// A proxy may accept every connection, and say nothing.
TEST(PeerConnector, TriesTheNextAddressOfAPeerIfOneIsSilent) {
  dist::Socket silent;
  const auto connect = [](int rank, PeerConnector& connector, const Overheard&) {
    expect_to_talk(connector.connect("all", ranks_from(0, rank), ranks_from(rank + 1, 2), dist::Deadline(15)),
                   "hello");
  };
  run_ranks(2, connect, [&](int rank, std::vector<std::string>& texts) {  // "number port address"
    if (rank != 1) return;
    const std::size_t address = texts[0].rfind(' ');
    silent = dist::listen_at({"127.0.0.3", std::stoi(texts[0].substr(texts[0].find(' ')))});
    texts[0].insert(address, " 127.0.0.3");
  });
}

TEST(PeerConnector, AStreamOfConnectionsDoesNotBlockRanks) {
  run_ranks(2, [](int rank, PeerConnector& connector, const Overheard& rendezvous) {
    std::optional<ConnectionFlood> flood;
    if (rank == 0) flood.emplace(rendezvous.port_of(0));
    const auto begin = std::chrono::steady_clock::now();
    expect_to_talk(connector.connect("all", ranks_from(0, rank), ranks_from(rank + 1, 2), dist::Deadline(20)),
                   "hello");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  });
}

TEST(PeerConnector, NamesTheLimitOfDescriptors) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  run_ranks(2, [&](int rank, PeerConnector& connector, const Overheard&) {
    if (rank == 1) return;
    const std::vector<int> many = ranks_from(1, 70);
    const rlimit few{64, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    EXPECT_THAT(message_of<UsageError>([&] { connector.connect("all", {}, many, dist::Deadline(0.3)); }),
                HasSubstr("69 connections to other ranks: found "));
    setrlimit(RLIMIT_NOFILE, &before);
  });
}

}  // namespace
}  // namespace convoy::testing

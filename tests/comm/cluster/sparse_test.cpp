// Tests of collectives along sparse graphs: threads of this process, or forked processes, over TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "convoy/comm/cluster/tcp/tcp_communicator.h"
#include "convoy/comm/core/all_reduce.h"
#include "convoy/comm/core/sparse_graph.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/message_transport.h"
#include "tests/comm/rank_threads.h"
#include "tests/comm/rendezvous_ranks.h"
#include "tests/comm/transport/conformance.h"
#include "tests/comm/transport/corruption.h"
#include "tests/comm/transport/sparse_order.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/notice.h"

namespace convoy::testing {
namespace {

using dist::AllReduce;
using ::testing::HasSubstr;

constexpr AllReduce kSparse[] = {AllReduce::ring, AllReduce::halving_doubling, AllReduce::tree};
constexpr AllReduce kAll[] = {AllReduce::direct, AllReduce::ring, AllReduce::halving_doubling,
                              AllReduce::tree, AllReduce::automatic};

dist::CommOptions by(AllReduce algorithm, double timeout_seconds = 60) {
  return {.timeout_seconds = timeout_seconds, .all_reduce = {.algorithm = algorithm}};
}

std::string new_url() { return "tcp://127.0.0.1:" + std::to_string(free_port()); }

TEST(SparseGraph, HasFewMutualPeers) {
  for (int size = 1; size <= 128; ++size) {
    std::vector<std::vector<int>> peers;
    for (int rank = 0; rank < size; ++rank) peers.push_back(dist::sparse_peers(rank, size));
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_LE(peers[static_cast<std::size_t>(rank)].size(), 26U) << size;
      for (const int other : peers[static_cast<std::size_t>(rank)]) {
        ASSERT_NE(other, rank);
        EXPECT_TRUE(std::ranges::count(peers[static_cast<std::size_t>(other)], rank) == 1) << size;
      }
    }
  }
}

TEST(SparseGraph, TreesReachAllRanksOnce) {
  for (int size = 1; size <= 20; ++size)
    for (int root = 0; root < size; ++root) {
      std::vector<int> parents(static_cast<std::size_t>(size), -1);
      for (int rank = 0; rank < size; ++rank)
        for (const int child : dist::BinomialTree(rank, size, root).children) {
          EXPECT_EQ(dist::BinomialTree(child, size, root).parent, rank);
          EXPECT_EQ(std::exchange(parents[static_cast<std::size_t>(child)], rank), -1);
        }
      EXPECT_EQ(std::ranges::count(parents, -1), 1);
      EXPECT_EQ(parents[static_cast<std::size_t>(root)], -1);
    }
}

TEST(AllReduceChoice, FollowsTheTimesOfMessages) {
  const dist::AllReduceOptions any;
  EXPECT_EQ(any.algorithm_for(8, 0), AllReduce::direct);
  EXPECT_EQ(any.algorithm_for(8, 1 << 30), AllReduce::direct);
  EXPECT_EQ(any.algorithm_for(9, 100), AllReduce::tree);
  EXPECT_EQ(any.algorithm_for(9, 100 << 10), AllReduce::halving_doubling);
  EXPECT_EQ(any.algorithm_for(128, 1 << 20), AllReduce::halving_doubling);
  EXPECT_EQ(dist::AllReduceOptions{.algorithm = AllReduce::ring}.algorithm_for(2, 0), AllReduce::ring);
  // All 16 ranks of a host would send halves to the other host at once.
  EXPECT_EQ(dist::AllReduceOptions{.hosts = 2}.algorithm_for(32, 100 << 20), AllReduce::ring);
  EXPECT_EQ(dist::AllReduceOptions{.hosts = 2}.algorithm_for(32, 100 << 10), AllReduce::tree);
  // A link without latency favors large messages no longer.
  EXPECT_EQ((dist::AllReduceOptions{.latency_us = 1e4, .gb_per_s = 100}.algorithm_for(64, 1 << 20)),
            AllReduce::tree);
}

/// Compares the collectives of every type with exact results, and the sums with the order of README.md.
void expect_to_conform(dist::Communicator& comm, AllReduce algorithm) {
  const int n = comm.size();
  const auto value = [](int rank, std::int64_t i) { return static_cast<float>((rank * 7 + i * 3) % 11); };
  const auto check_type = [&](auto zero) {
    using T = decltype(zero);
    const auto values = [&](int rank, std::int64_t count) {
      std::vector<T> all;
      for (std::int64_t i = 0; i < count; ++i) all.push_back(static_cast<T>(value(rank, i)));
      return all;
    };
    const auto sum_at = [&](std::int64_t i) {
      float sum = 0;
      for (int rank = 0; rank < n; ++rank) sum += value(rank, i);
      return sum;
    };
    for (const std::int64_t count : {0, 1, n - 1, 3 * n + 2, 257}) {
      if constexpr (!std::is_same_v<T, std::uint8_t>) {
        DeviceValues<T> data(comm, values(comm.rank(), count));
        comm.all_reduce(data.view());
        for (std::int64_t i = 0; const T found : data.read(comm))
          ASSERT_EQ(static_cast<float>(found), sum_at(i++));
        const DeviceValues<T> in(comm, values(comm.rank(), count * n));
        DeviceValues<T> out(comm, std::vector<T>(static_cast<std::size_t>(count)));
        comm.reduce_scatter(in.view(), out.view());
        for (std::int64_t i = count * comm.rank(); const T found : out.read(comm))
          ASSERT_EQ(static_cast<float>(found), sum_at(i++));
      }
      const auto as_float = [](T of) { return static_cast<float>(of); };
      const DeviceValues<T> part(comm, values(comm.rank(), count));
      DeviceValues<T> whole(comm, std::vector<T>(static_cast<std::size_t>(count * n)));
      comm.all_gather(part.view(), whole.view());
      for (std::int64_t i = 0; const T found : whole.read(comm)) {
        ASSERT_EQ(as_float(found), value(static_cast<int>(i / count), i % count));
        ++i;
      }
      const int root = static_cast<int>(count % n);
      DeviceValues<T> sent(comm, values(comm.rank(), count));
      comm.broadcast(sent.view(), root);
      const std::vector<T> expected = values(root, count);
      for (std::size_t i = 0; const T found : sent.read(comm))
        ASSERT_EQ(as_float(found), as_float(expected[i++]));
    }
  };
  check_type(float{});
  check_type(double{});
  check_type(float16{});
  check_type(bfloat16{});
  check_type(std::int32_t{});
  check_type(std::uint8_t{});
  if (algorithm != AllReduce::direct && algorithm != AllReduce::automatic)
    expect_summed_in_order(comm, algorithm, 131);
  const std::vector<std::string> texts =
      comm.gather_object(std::string(static_cast<std::size_t>(comm.rank()), 'x'));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], std::string(rank, 'x'));
  const auto half = comm.split(comm.rank() % 2);
  EXPECT_EQ(half->rank(), comm.rank() / 2);
  half->barrier();
  half->finish();
  comm.barrier();
  comm.finish();
}

TEST(SparseCollectives, ConformWithAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 5, 8, 9, 13})
    run_rank_threads(ranks, [&](dist::ThreadRendezvous& rendezvous) {
      for (const AllReduce algorithm : kAll) {
        if (algorithm == AllReduce::automatic && ranks <= dist::AllReduceOptions::kMaxDirectRanks) continue;
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, dist::to_string(algorithm));
        const auto comm = dist::make_tcp_communicator(rendezvous, by(algorithm));
        ASSERT_NO_FATAL_FAILURE(expect_to_conform(*comm, algorithm));
      }
    });
}

/// Data of several parts, whose sizes are no multiples of the number of ranks.
TEST(SparseCollectives, SumLargeData) {
  run_rank_threads(3, [](dist::ThreadRendezvous& rendezvous) {
    for (const AllReduce algorithm : kSparse) {
      const auto comm = dist::make_tcp_communicator(rendezvous, by(algorithm));
      constexpr std::int64_t kCount = (std::int64_t{2} << 20) + 4;  // two parts of 8 MiB
      DeviceValues<float> data(*comm, std::vector<float>(kCount, 1.0F));
      comm->all_reduce(data.view());
      EXPECT_EQ(std::ranges::count(data.read(*comm), 3.0F), kCount);
      DeviceValues<float> part(*comm, std::vector<float>(kCount / 3));
      comm->reduce_scatter(dist::subview(data.view(), 0, kCount / 3 * 3), part.view());
      EXPECT_EQ(std::ranges::count(part.read(*comm), 9.0F), kCount / 3);
      comm->all_gather(part.view(), dist::subview(data.view(), 0, kCount / 3 * 3));
      EXPECT_EQ(std::ranges::count(data.read(*comm), 9.0F), kCount / 3 * 3);
      comm->finish();
    }
  });
}

/// Inconsistent, missing and exiting ranks: every rank names them.
TEST(SparseCollectives, FailAsOthersDo) {
  constexpr int kRanks = 13;
  run_rank_threads(kRanks, [&](dist::ThreadRendezvous& rendezvous) {
    const MakeCommunicator make = [&](const dist::CommOptions& options) {
      return dist::make_tcp_communicator(rendezvous, by(AllReduce::tree, options.timeout_seconds));
    };
    for (const auto cases : {disagreement_cases(), departure_cases()})
      run_cases(cases, kRanks, make, [&] { rendezvous.barrier(); });
  });
}

/// Rank 4 of 9 has a parent and children in the tree of signatures.
TEST(SparseCollectives, NameTheRankThatIsMissingInTheMiddle) {
  run_rank_threads(9, [](dist::ThreadRendezvous& rendezvous) {
    const auto comm = dist::make_tcp_communicator(rendezvous, by(AllReduce::automatic, 2));
    comm->barrier();
    if (comm->rank() == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(700));  // later than the others
    if (comm->rank() != 4) {
      EXPECT_THAT(message_of<PeerError>([&] { comm->barrier(); }), HasSubstr("waited 2 s for rank 4"));
    }
    rendezvous.barrier();
  });
}

TEST(SparseCollectives, NameTheRankThatHasCalledAnother) {
  run_rank_threads(9, [](dist::ThreadRendezvous& rendezvous) {
    const auto comm = dist::make_tcp_communicator(rendezvous, by(AllReduce::automatic));
    const std::string error = message_of<PeerError>([&] {
      if (comm->rank() == 6) comm->gather_object("");
      comm->barrier();
    });
    EXPECT_THAT(error, HasSubstr("ranks 0, 1, 2, 3, 4, 5, 7, 8 in barrier 0, rank 6 in gather 0"));
    rendezvous.barrier();
  });
}

TEST(SparseCollectives, NameTheRankThatIsKilled) {
  run_rendezvous_ranks(9, new_url(), [](dist::Rendezvous& rendezvous) {
    const auto comm = dist::make_tcp_communicator(rendezvous, by(AllReduce::ring));
    DeviceValues<float> data(*comm, std::vector<float>(1 << 20, 1.0F));
    comm->all_reduce(data.view());
    comm->synchronize();
    if (comm->rank() == 5) kill(getpid(), SIGKILL);
    const std::string error = message_of<PeerError>([&] {
      comm->all_reduce(data.view());
      comm->synchronize();
    });
    EXPECT_THAT(error, HasSubstr("rank 5 has disconnected"));
  });
}

/// Stopped between the comparison of signatures and the end of the transfer, which a ring of ranks waits for.
TEST(SparseCollectives, NameTheRankThatIsStoppedInATransfer) {
  const Notice reported;
  run_rendezvous_ranks(
      5, new_url(),
      [&](dist::Rendezvous& rendezvous) {
        const auto comm = dist::make_tcp_communicator(rendezvous, by(AllReduce::ring, 2));
        DeviceValues<float> data(*comm, std::vector<float>(8 << 20, 1.0F));
        comm->barrier();
        std::thread stopper;
        if (comm->rank() == 3)
          stopper = std::thread([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            raise(SIGSTOP);  // until it is killed
          });
        const std::string error = message_of<PeerError>([&] {
          while (true) {
            comm->all_reduce(data.view());
            comm->synchronize();
          }
        });
        EXPECT_THAT(error, HasSubstr("waited 2 s for rank 3"));
        if (stopper.joinable()) stopper.join();
        reported.notify();
      },
      [&](const std::vector<pid_t>& processes) {
        EXPECT_TRUE(reported.await(4));
        kill(processes[3], SIGKILL);
      });
}

TEST(SparseCollectives, DetectAChangedMessage) {
  run_rank_threads(5, [](dist::ThreadRendezvous& rendezvous) {
    for (const AllReduce algorithm : kSparse) {
      const ChangedMessage message{.from = 2, .to = algorithm == AllReduce::ring ? 3 : 0, .number = 0};
      dist::CpuCommunicator comm(std::make_unique<dist::MessageTransport>(
          std::make_unique<FlippingLinks>(dist::make_tcp_links(rendezvous, by(algorithm)), message),
          dist::AllReduceOptions{.algorithm = algorithm}));
      expect_reported(comm, {"", all_reduced, sum_of_ranks(5), "rank 2 sent a partial sum"}, 90'000, true);
      rendezvous.barrier();
    }
  });
}

/// Links that count the messages of a rank.
class CountingLinks final : public ForwardingLinks {
 public:
  CountingLinks(std::unique_ptr<dist::MessageLinks> links, std::atomic<int>& sent)
      : ForwardingLinks(std::move(links)), sent_(sent) {}
  void send(int to, std::span<const std::byte> bytes) override {
    ++sent_;
    ForwardingLinks::send(to, bytes);
  }

 private:
  std::atomic<int>& sent_;
};

/// Returns the messages that the ranks send in one call of each collective with little data, by collective.
std::map<std::string, std::vector<int>> messages_of(int ranks, AllReduce algorithm) {
  std::map<std::string, std::vector<int>> messages;
  std::mutex mutex;
  run_rank_threads(ranks, [&](dist::ThreadRendezvous& rendezvous) {
    std::atomic<int> sent = 0;
    dist::CpuCommunicator comm(std::make_unique<dist::MessageTransport>(
        std::make_unique<CountingLinks>(dist::make_tcp_links(rendezvous, by(algorithm)), sent),
        dist::AllReduceOptions{.algorithm = algorithm}));
    DeviceValues<float> data(comm, std::vector<float>(static_cast<std::size_t>(ranks), 1.0F));
    const auto count = [&](const char* name, const std::function<void()>& call) {
      sent = 0;
      call();
      comm.synchronize();
      const std::lock_guard lock(mutex);
      messages[name].push_back(sent);
    };
    count("barrier", [&] { comm.barrier(); });
    count("broadcast", [&] { comm.broadcast(data.view(), 1); });
    count("gather", [&] { comm.gather_object("text"); });
    count("all-reduce", [&] { comm.all_reduce(data.view()); });
    comm.finish();
  });
  return messages;
}

/// No loop over all pairs: messages(2 n) / messages(n) < 2.2. The algorithms that send more to save bytes have that limit
/// for one rank.
TEST(SparseCollectives, SendFewMessages) {
  const auto sum = [](const std::vector<int>& sent) { return std::reduce(sent.begin(), sent.end()); };
  for (const AllReduce algorithm : {AllReduce::automatic, AllReduce::ring, AllReduce::halving_doubling}) {
    const auto half = messages_of(16, algorithm), whole = messages_of(32, algorithm);
    for (const auto& [name, sent] : whole) {
      const std::vector<int>& before = half.at(name);
      if (name != "all-reduce" || algorithm == AllReduce::automatic) {
        EXPECT_LT(sum(sent), 2.2 * sum(before)) << name;
        EXPECT_LE(sum(sent), 8 * 32) << name;
      }
      EXPECT_LT(std::ranges::max(sent), 2.2 * std::ranges::max(before))
          << name << " " << to_string(algorithm);
    }
  }
}

TEST(SparseCollectives, CheckTheLimitOfDescriptorsFirst) {
  run_rendezvous_ranks(12, new_url(), [](dist::Rendezvous& rendezvous) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur =
        static_cast<rlim_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {})) + 7;
    setrlimit(RLIMIT_NOFILE, &limit);
    EXPECT_THAT(message_of<UsageError>([&] { dist::make_tcp_communicator(rendezvous, by(AllReduce::ring)); }),
                HasSubstr("raise the limit with ulimit -n"));
    rendezvous.barrier();
  });
}

}  // namespace
}  // namespace convoy::testing

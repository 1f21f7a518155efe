// Tests of statuses that describe several ranks, and of the root of a job of 16,385 ranks that receives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "convoy/comm/bootstrap/thread_rendezvous.h"
#include "convoy/comm/cluster/control/host_agent.h"
#include "convoy/comm/cluster/control/status_group.h"
#include "convoy/kernels/base/check.h"
#include "tests/comm/cluster/hosts_in_threads.h"

namespace convoy::dist {
namespace {

using Life = RankStatus::Life;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr double kQuiet = 1.7;
constexpr double kPatience = 60;  // seconds until a condition fails

/// Ranks of a training that goes on: each is somewhere else in its step.
std::vector<RankStatus> running_ranks(int first, int count) {
  std::vector<RankStatus> ranks;
  for (int i = 0; i < count; ++i) {
    RankStatus rank{.rank = first + i, .host = fmt::format("host-{}", (first + i) / 8), .process = 1000 + i};
    rank.phase = i % 3 == 0 ? Phase::backward : Phase::forward;
    rank.step = 17 + i % 2;
    rank.progress_seconds = 0.01 * (i % 10);
    rank.beat_seconds = 0.02 * (i % 5);
    rank.progress = {
        {"gradients", static_cast<std::uint64_t>(400 + i % 7), static_cast<std::uint64_t>(390 + i % 7)}};
    rank.stop_points = static_cast<std::uint64_t>(17 + i % 2);
    ranks.push_back(rank);
  }
  return ranks;
}

/// Ranks that wait in a sum for the rank `late`, which reads data.
std::vector<RankStatus> waiting_ranks(int first, int count, int late) {
  std::vector<RankStatus> ranks = running_ranks(first, count);
  for (RankStatus& rank : ranks) {
    rank.step = 17;
    rank.progress_seconds = rank.phase_seconds = 5 + 0.001 * (rank.rank % 100);
    rank.progress = {{"gradients", 418, 417}};
    if (rank.rank == late) {
      rank.phase = Phase::data;
      rank.io_seconds = rank.phase_seconds;
      rank.progress = {{"gradients", 417, 417}};
    } else {
      rank.phase = Phase::gradients;
      rank.collectives = {{"gradients", 417, "all-reduce 417 (1024 f32)", rank.phase_seconds}};
    }
  }
  return ranks;
}

TEST(StatusGroup, OneStatusDescribesAllRanksThatMakeProgress) {
  const std::vector<RankStatus> groups = grouped(running_ranks(64, 512), kQuiet, /*kept=*/64);
  ASSERT_THAT(groups, SizeIs(2));
  EXPECT_EQ(groups[0].rank, 64);
  EXPECT_THAT(groups[0].others, IsEmpty());
  EXPECT_EQ(groups[1].rank, 65);
  EXPECT_THAT(groups[1].others, ElementsAre(Pair(66, 575)));
  EXPECT_EQ(groups[1].progress_seconds, 0);
  EXPECT_EQ(groups[1].beat_seconds, 0.08);
  EXPECT_EQ(groups[1].stop_points, 18);
  EXPECT_EQ(count_ranks(groups), 512);
}

TEST(StatusGroup, RanksThatNeedAttentionKeepTheirStatus) {
  std::vector<RankStatus> ranks = running_ranks(0, 100);
  ranks[10].failure = "out of memory";
  ranks[20].life = Life::dead;
  ranks[30].life = Life::stopped;
  ranks[40].stop_code = 143;
  ranks[50].stack = "in read()";
  ranks[60].beat_seconds = 3;
  ranks[70].life = Life::left;
  ranks[80].life = Life::left;
  ranks[90].progress_seconds = 2;
  const std::vector<RankStatus> groups = grouped(ranks, kQuiet, 0);
  std::vector<int> firsts;
  for (const RankStatus& group : groups) firsts.push_back(group.rank);
  EXPECT_THAT(firsts, ElementsAre(0, 1, 10, 20, 30, 40, 50, 60, 70, 90));
  EXPECT_THAT(groups[8].others, ElementsAre(Pair(80, 80)));
  EXPECT_EQ(count_ranks(groups), 100);
  EXPECT_EQ(first_cause(groups)->text, first_cause(ranks)->text);
}

TEST(StatusGroup, AWarningIsTheSameAfterGroupsOfGroups) {
  const std::vector<RankStatus> ranks = waiting_ranks(0, 64, 37);
  std::vector<RankInfo> all;
  for (const RankStatus& rank : ranks) all.push_back({.rank = rank.rank, .host = rank.host});
  const std::vector<RankStatus> half(ranks.begin(), ranks.begin() + 32),
      other(ranks.begin() + 32, ranks.end());
  std::vector<RankStatus> both = grouped(half, 0, 0);
  for (const RankStatus& status : grouped(other, 0, 32)) both.push_back(status);
  both = grouped(both, 0, 0);
  EXPECT_THAT(both, SizeIs(3));  // the first rank, those that wait, and the late one
  EXPECT_EQ(count_ranks(both), 64);
  const std::vector<RankStatus> again = expanded(both, all);
  ASSERT_THAT(again, SizeIs(64));
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(again[i].rank, ranks[i].rank);
    EXPECT_EQ(again[i].host, ranks[i].host);
    EXPECT_EQ(again[i].phase, ranks[i].phase);
  }
  EXPECT_EQ(describe_stall(again), describe_stall(ranks));
}

TEST(StatusGroup, NamesTheRankThatReadsNothingForTheLongestTime) {
  std::vector<RankStatus> ranks = running_ranks(0, 8);
  for (RankStatus& rank : ranks) {
    rank.phase = Phase::read;
    rank.step = 0;
    rank.progress = {};
    rank.io_seconds = rank.rank == 5 ? 9 : 3;
  }
  const std::vector<RankStatus> groups = grouped(ranks, kQuiet, 0);
  ASSERT_THAT(groups, SizeIs(2));
  EXPECT_EQ(groups[1].rank, 5);
  EXPECT_EQ(groups[1].io_seconds, 9);
  EXPECT_THAT(groups[1].others, ElementsAre(Pair(1, 4), Pair(6, 7)));
}

/// A root with 32 children, each of which reports 512 ranks of 64 hosts.
class RootOfManyRanks : public ::testing::Test {
 protected:
  static constexpr int kChildren = AgentTree::kFanOut, kRanksBelow = 512;

  RootOfManyRanks() {
    all.push_back({.rank = 0, .host = "host-0"});
    for (int child = 1; child <= kChildren; ++child)
      for (int i = 0; i < kRanksBelow; ++i) {
        const int node = i < 8 ? child : kChildren + 63 * (child - 1) + i / 8;
        all.push_back({.rank = first_of(child) + i,
                       .local_rank = i % 8,
                       .node = node,
                       .host = fmt::format("host-{}", (first_of(child) + i) / 8)});
      }
  }

  static int first_of(int child) { return 1 + kRanksBelow * (child - 1); }

  /// Runs the root for some seconds, and until `is_over`. `statuses` returns those below a child, from its first
  /// rank on. Returns the share of a core that the root takes.
  template <class Statuses>
  double run(double seconds, const Statuses& statuses, const std::function<bool()>& is_over) {
    using std::chrono::steady_clock;
    std::atomic<bool> has_left = false;
    double share = 0;
    std::vector<std::thread> threads;
    for (auto& rendezvous : rendezvous_in_threads(1 + kChildren, 60))
      threads.emplace_back([&, own = std::move(rendezvous)]() mutable {
        HostsInThreads hosts(std::move(own), 1);
        std::unique_ptr<AgentTree> tree = AgentTree::connect(hosts, Deadline(60));
        const int node = hosts.info().node;
        HostMemory memory(hosts);
        if (node == 0) {
          share = run_root(seconds, memory, std::move(tree), is_over);
          has_left = true;
        } else {
          const std::vector<RankStatus> ranks = grouped(statuses(first_of(node)), kQuiet, first_of(node));
          nlohmann::json report = {{"knows_of_stop", false},
                                   {"ranks", ranks},
                                   {"warnings", nlohmann::json::array()},
                                   {"paces", ""}};
          largest = std::max(largest.load(), nlohmann::json::to_msgpack(report).size());
          std::uint64_t block = 0;
          for (auto next = steady_clock::now(); !has_left; next += std::chrono::milliseconds(500)) {
            if (slow_rank > 0) report["paces"] = paces(first_of(node), ++block);
            std::string bytes;
            nlohmann::json::to_msgpack(report, bytes);
            tree->send_up(bytes);
            while (!has_left && steady_clock::now() < next) tree->poll(std::chrono::milliseconds(50));
          }
          tree->leave();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return share;
  }

  /// Returns the blocks of steps of 0.1 s of the ranks below a child, of which one computes for a tenth longer.
  std::string paces(int first, std::uint64_t block) const {
    std::string all_paces;
    for (int rank = first; rank < first + kRanksBelow; ++rank)
      all_paces += fmt::format("{} 17 {} 110000 1000 {} 50000 0 2000 0 0 ", rank, block,
                               30'000 + 10 * (rank % 13) + (rank == slow_rank ? 10'000 : 0));
    return all_paces;
  }

  double run_root(double seconds, HostMemory& memory, std::unique_ptr<AgentTree> tree,
                  const std::function<bool()>& is_over) {
    const auto cpu_seconds = [] {
      timespec used{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
      return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
    };
    root = &memory;
    memory.mine().state = RankSlot::State::running;
    HostAgent agent(memory, all, std::move(tree),
                    {.warn_after_seconds = 4,
                     .on_warning = [&](const std::string& text) { warnings.push_back(text); },
                     .on_straggler = [&](const std::string& text) { stragglers.push_back(text); }});
    const double begin = cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    const auto age = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    while (age() < seconds || (age() < kPatience && !is_over())) {
      memory.mine().beat = memory.mine().progress = steady_nanoseconds() - progress_age;
      memory.mine().beat = steady_nanoseconds();
      if (slow_rank > 0) {
        memory.mine().step_seconds = 0.11;
        memory.mine().own_seconds[1] = 0.08;
        memory.mine().block = static_cast<std::uint64_t>(2 * age());
      }
      agent.serve();
    }
    const double share = (cpu_seconds() - begin) / age();
    verdict = memory.get(kVerdict);
    memory.mine().state = RankSlot::State::left;
    agent.leave();
    return share;
  }

  std::vector<RankInfo> all;
  std::int64_t progress_age = 0;  // of the root's rank, nanoseconds
  std::vector<std::string> warnings;
  std::vector<std::string> stragglers;
  int slow_rank = 0;  // 0: no blocks of steps are reported
  std::string verdict;
  HostMemory* root = nullptr;            // of the root, while it runs
  std::atomic<std::size_t> largest = 0;  // report, in bytes
};

TEST_F(RootOfManyRanks, HearsLittleWhileAllRanksMakeProgress) {
  const double share = run(
      5, [&](int first) { return running_ranks(first, kRanksBelow); }, [] { return true; });
  fmt::print("the root of {} ranks takes {:.1f} % of a core; a report has at most {} bytes\n", all.size(),
             100 * share, largest.load());
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_EQ(verdict, "");
  EXPECT_LT(largest, 4000);
}

TEST_F(RootOfManyRanks, NamesTheRankThatAllOthersWaitFor) {
  progress_age = 5'000'000'000;
  const double share = run(
      3, [&](int first) { return waiting_ranks(first, kRanksBelow, 9000); },
      [&] { return !warnings.empty() && warnings.back().find("16383 ranks wait") != std::string::npos; });
  fmt::print("the root of {} ranks that wait takes {:.1f} % of a core; a report has at most {} bytes\n",
             all.size(), 100 * share, largest.load());
  ASSERT_FALSE(warnings.empty());
  EXPECT_THAT(warnings.back(), AllOf(HasSubstr("16383 ranks wait in all-reduce 417 (1024 f32) (gradients): "),
                                     HasSubstr("rank 9000 on host-1125 has been in the data loader")));
  EXPECT_EQ(verdict, "");
  EXPECT_LT(largest, 6000);
}

/// Ten times as many blocks as in reality.
TEST_F(RootOfManyRanks, NamesTheRankThatIsSlow) {
  slow_rank = 5000;
  const double share = run(
      5, [&](int first) { return running_ranks(first, kRanksBelow); }, [&] { return !stragglers.empty(); });
  fmt::print("the root of {} ranks with ten times as many blocks of steps takes {:.1f} % of a core\n",
             all.size(), 100 * share);
  ASSERT_THAT(stragglers, SizeIs(1));
  EXPECT_THAT(stragglers[0],
              AllOf(HasSubstr("rank 5000 on host-625 has been "), HasSubstr("in the forward pass")));
}

TEST_F(RootOfManyRanks, NamesTheRankThatHasFailed) {
  const auto statuses = [&](int first) {
    std::vector<RankStatus> ranks = running_ranks(first, kRanksBelow);
    if (first == first_of(20)) ranks[300].failure = "the disk is full";
    return ranks;
  };
  run(0, statuses, [&] { return root->get(kVerdict) != ""; });
  EXPECT_THAT(verdict, HasSubstr(fmt::format("rank {}: the disk is full", first_of(20) + 300)));
}

}  // namespace
}  // namespace convoy::dist

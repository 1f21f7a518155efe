// Tests of the ranks that are named because they are slow, and of the stacks of those that are late.
#include "convoy/comm/cluster/control/straggler_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "convoy/comm/bootstrap/thread_rendezvous.h"
#include "convoy/comm/cluster/control/control_plane.h"
#include "convoy/comm/cluster/control/host_memory.h"
#include "convoy/comm/cluster/control/thread_stack.h"
#include "convoy/comm/transport/thread/thread_communicator.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

using std::chrono::milliseconds;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::size_t index_of(Phase phase) {
  return static_cast<std::size_t>(static_cast<int>(phase) - kFirstStepPhase);
}

/// Ranks whose steps have 100 ms, of which each computes 60 ms forward and waits for the rest.
class Paces {
 public:
  explicit Paces(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      ranks_.push_back({.rank = rank, .host = rank < 2 ? "a" : "b", .step = 17});
      ranks_.back().pace.own_seconds.resize(kStepPhases);
    }
  }
  /// Sets the time of a rank in a phase of the next block.
  void set(int rank, Phase phase, double seconds) {
    ranks_[static_cast<std::size_t>(rank)].pace.own_seconds[index_of(phase)] = seconds;
  }
  /// Returns the ranks that the next block names.
  std::vector<std::string> next() {
    for (RankStatus& rank : ranks_) {
      ++rank.pace.block;
      rank.pace.step_seconds = 0.1;
    }
    return watch_.observe(ranks_, 60);
  }
  /// Returns those of several blocks.
  std::vector<std::string> next(int blocks) {
    std::vector<std::string> named;
    for (int i = 0; i < blocks; ++i)
      for (std::string& text : next()) named.push_back(std::move(text));
    return named;
  }
  std::vector<RankStatus>& ranks() { return ranks_; }

 private:
  std::vector<RankStatus> ranks_;
  StragglerWatch watch_;
};

Paces equal_ranks(int ranks) {
  Paces paces(ranks);
  for (int rank = 0; rank < ranks; ++rank) paces.set(rank, Phase::forward, 0.06);
  return paces;
}

TEST(StragglerWatch, NamesARankThatIsSlowForAWindowOnceWithItsPhase) {
  for (const int ranks : {2, 3, 4, 64}) {
    Paces paces = equal_ranks(ranks);
    EXPECT_THAT(paces.next(20), IsEmpty());
    paces.set(ranks - 1, Phase::data, 0.006);  // of a step of 94 ms without it
    EXPECT_THAT(paces.next(StragglerWatch::kBlocks - StragglerWatch::kOutliers - 1), IsEmpty());
    const std::string host = ranks == 2 ? "a" : "b";
    EXPECT_THAT(paces.next(100),
                ElementsAre(fmt::format("rank {} on {} has been 6 % slower than the other ranks for 60 s, "
                                        "most of it in the data loader (step 17)",
                                        ranks - 1, host)));
    paces.set(ranks - 1, Phase::data, 0);
    EXPECT_THAT(paces.next(20), IsEmpty());
    paces.set(ranks - 1, Phase::data, 0.02);
    EXPECT_EQ(paces.next(20).size(), 1U);  // again
  }
}

TEST(StragglerWatch, NamesNoRankThatIsSlowerByLess) {
  Paces paces = equal_ranks(4);
  paces.set(1, Phase::backward, 0.004);
  EXPECT_THAT(paces.next(100), IsEmpty());
}

/// A rank makes the steps 30 times as long, for less than a window.
TEST(StragglerWatch, NamesNoRankBecauseOfAShortStall) {
  Paces paces = equal_ranks(4);
  EXPECT_THAT(paces.next(20), IsEmpty());
  paces.set(2, Phase::data, 3);
  EXPECT_THAT(paces.next(StragglerWatch::kBlocks - StragglerWatch::kOutliers - 1), IsEmpty());
  paces.set(2, Phase::data, 0);
  EXPECT_THAT(paces.next(20), IsEmpty());
}

/// Each block of each rank is slower by up to 10 ms, a tenth of a step, for reasons that do not belong to the rank.
TEST(StragglerWatch, NamesNoRankBecauseOfNoise) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(0, 0.01);
  for (const int ranks : {2, 3, 8}) {
    Paces paces(ranks);
    std::size_t named = 0;
    for (int block = 0; block < 20'000; ++block) {  // a day
      for (int rank = 0; rank < ranks; ++rank) paces.set(rank, Phase::forward, 0.06 + noise(random));
      named += paces.next().size();
    }
    EXPECT_EQ(named, 0U) << ranks;
  }
}

TEST(StragglerWatch, WaitsForTheBlockOfEachRank) {
  Paces paces = equal_ranks(2);
  paces.set(1, Phase::data, 0.05);
  StragglerWatch watch;
  for (int i = 1; i <= 3 * StragglerWatch::kBlocks; ++i) {
    for (RankStatus& rank : paces.ranks()) rank.pace.step_seconds = 0.1;
    paces.ranks()[0].pace.block = static_cast<std::uint64_t>(i);  // rank 1 has none
    EXPECT_THAT(watch.observe(paces.ranks(), 60), IsEmpty());
  }
  EXPECT_THAT(watch.observe({}, 60), IsEmpty());
}

/// Trains with ranks that are threads until rank 0 has a warning, or for `seconds`. Rank `slow` takes longer in
/// `phase`, by a fifth of a step. Returns the warnings.
std::vector<std::string> train(int ranks, int slow, Phase phase, double seconds) {
  std::mutex mutex;
  std::vector<std::string> warnings;
  std::vector<std::thread> threads;
  for (auto& rendezvous : rendezvous_in_threads(ranks, 30))
    threads.emplace_back([&, own = std::move(rendezvous)]() mutable {
      try {
        const auto plane = connect_control_plane(*own, {});
        const auto comm = make_thread_communicator(*own, {.monitor = plane->monitor("gradients")});
        const int rank = own->info().rank;
        const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
        for (std::int64_t step = 1;; ++step) {
          plane->set_step(step);
          for (const Phase each : {Phase::data, Phase::forward, Phase::backward}) {
            plane->enter(each);
            std::this_thread::sleep_for(milliseconds(rank == slow && each == phase ? 6 : 3));
          }
          plane->enter(Phase::backward);  // waits there for the slow rank, which is not its own time
          comm->barrier();
          plane->enter(Phase::between);
          bool is_over = false;
          if (rank == 0) {
            const std::lock_guard lock(mutex);
            for (std::string& text : plane->take_warnings()) warnings.push_back(std::move(text));
            is_over = !warnings.empty() || std::chrono::steady_clock::now() > limit;
          } else {
            EXPECT_THAT(plane->take_warnings(), IsEmpty());
          }
          if (plane->stop_code(is_over ? 1 : 0) != 0) break;
        }
        comm->finish();
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return warnings;
}

class Stragglers : public ::testing::Test {
 protected:
  Stragglers() { setenv(kStragglerWindowVariable, "2", 1); }
  ~Stragglers() override { unsetenv(kStragglerWindowVariable); }
};

TEST_F(Stragglers, AreNamedOnRankZeroWithTheirPhase) {
  EXPECT_THAT(train(3, 2, Phase::data, 30),
              ElementsAre(AllOf(HasSubstr("rank 2 on "),
                                HasSubstr(" % slower than the other ranks for 2 s, most of it in "
                                          "the data loader"))));
  EXPECT_THAT(train(2, 0, Phase::backward, 30),
              ElementsAre(AllOf(HasSubstr("rank 0 on "), HasSubstr("in the backward pass"))));
}

TEST_F(Stragglers, AreNoneOfEqualRanks) { EXPECT_THAT(train(3, -1, Phase::data, 8), IsEmpty()); }

TEST_F(Stragglers, RefuseAnotherWindow) {
  setenv(kStragglerWindowVariable, "1 minute", 1);
  auto alone = std::move(rendezvous_in_threads(1, 30).front());
  EXPECT_THROW(connect_control_plane(*alone, {}), UsageError);
}

/// A thread that runs `work` until it is destroyed.
class Runner {
 public:
  template <class F>
  explicit Runner(F work)
      : thread_([this, work] {
          id_ = gettid();
          while (!stops_) work();
        }) {
    while (id_ == 0) std::this_thread::yield();
  }
  ~Runner() {
    stops_ = true;
    thread_.join();
  }
  pid_t id() const { return id_; }

 private:
  std::atomic<pid_t> id_ = 0;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

TEST(Stack, HasTheFunctionsOfAThread) {
  const Runner sleeper([] { usleep(300'000); });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_THAT(stack_of(sleeper.id()),
              AllOf(HasSubstr("nanosleep"), HasSubstr(" < "), Not(HasSubstr("answer"))));
}

/// The thread is interrupted at any place, also while it holds locks of the allocator.
TEST(Stack, InterruptsAnything) {
  std::atomic<std::int64_t> allocated = 0;
  const Runner worker([&] {
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < 50; ++i) texts.push_back(std::string(100 * i, 'x'));
    try {
      throw std::runtime_error(texts.back());
    } catch (const std::exception& error) {
      allocated += static_cast<std::int64_t>(std::string(error.what()).size());
    }
  });
  for (int i = 0; i < 500; ++i) EXPECT_THAT(stack_of(worker.id()), HasSubstr(" < ")) << i;
  const std::int64_t before = allocated;
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_GT(allocated, before) << "the thread does not go on";
}

TEST(Stack, IsThatOfTheKernelIfTheThreadCannotAnswer) {
  // A thread sleeps without interruption while its child of vfork() runs.
  const Runner parent([] {
    const pid_t child = vfork();
    if (child == 0) {
      usleep(1'000'000);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  });
  std::this_thread::sleep_for(milliseconds(50));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(stack_of(parent.id()), HasSubstr("state D"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(900));
  EXPECT_EQ(stack_of(1 << 22), "");  // no such thread
}

TEST(Stack, IsPublishedWhileARankIsLate) {
  std::mutex mutex;
  std::vector<std::string> warnings;
  std::vector<std::thread> threads;
  for (auto& rendezvous : rendezvous_in_threads(2, 30))
    threads.emplace_back([&, own = std::move(rendezvous)]() mutable {
      const auto plane =
          connect_control_plane(*own, {.warn_after_seconds = 0.6, .on_warning = [&](const std::string& text) {
                                         const std::lock_guard lock(mutex);
                                         warnings.push_back(text);
                                       }});
      plane->enter(Phase::forward);
      if (own->info().rank == 0) plane->monitor("sum")->started({.number = 3});
      usleep(1'500'000);
      own->barrier();
    });
  for (std::thread& thread : threads) thread.join();
  ASSERT_FALSE(warnings.empty());
  EXPECT_THAT(warnings.front(), HasSubstr("rank 1 on "));
  EXPECT_THAT(warnings.front(), AllOf(HasSubstr("; its thread: "), HasSubstr("nanosleep")));
}

/// A process dies in the middle of setting a text, at a page that it may not read.
TEST(HostMemory, HasATextAlsoIfAProcessDiesWhileItSetsOne) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  char* const pages =
      static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(mprotect(pages + page, page, PROT_NONE), 0);
  std::vector<std::unique_ptr<HostMemory>> memories(2);
  std::vector<std::thread> threads;
  for (auto& rendezvous : rendezvous_in_threads(2, 30))
    threads.emplace_back([&, own = std::move(rendezvous)]() mutable {
      memories[static_cast<std::size_t>(own->info().rank)] = std::make_unique<HostMemory>(*own);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto which : {kVerdict, kDumpDirectory}) {
    const pid_t child = fork();
    if (child == 0) {
      memories[0]->set(which, {pages + page - 10, 20});
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) != 0) << "it did not die";
    EXPECT_EQ(memories[1]->get(which), "");
    EXPECT_TRUE(memories[1]->set(which, "late"));
    EXPECT_FALSE(memories[1]->set(which, "later"));
    EXPECT_EQ(memories[0]->get(which), "late");
  }
  munmap(pages, 2 * page);
}

}  // namespace
}  // namespace convoy::dist

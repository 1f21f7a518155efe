#include "convoy/kernels/runtime/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

namespace convoy {
namespace {

using namespace std::chrono_literals;

std::vector<int> runs_of(ThreadPool& pool, int pieces) {
  std::vector<std::atomic<int>> runs(static_cast<std::size_t>(pieces));
  pool.run(pieces, [&](int, int piece) { ++runs[static_cast<std::size_t>(piece)]; });
  return {runs.begin(), runs.end()};
}

TEST(ThreadPool, RunsEachPieceOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (const int pieces : {0, 1, 2, 3, 7, 32, 1000, ThreadPool::kMaxPieces}) {
      SCOPED_TRACE(::testing::Message() << threads << " threads, " << pieces << " pieces");
      EXPECT_EQ(runs_of(pool, pieces), std::vector<int>(static_cast<std::size_t>(pieces), 1));
    }
  }
}

TEST(ThreadPool, SeesTheWritesOfAllPiecesInManyShortLoops) {
  ThreadPool pool(4);
  std::array<std::int64_t, 16> sums{};  // not atomic: each piece has an element of its own
  for (int loop = 1; loop <= 20000; ++loop) {
    pool.run(16, [&](int, int piece) { sums[static_cast<std::size_t>(piece)] += loop; });
    ASSERT_EQ(std::accumulate(sums.begin(), sums.end(), std::int64_t{0}),
              16 * std::int64_t{loop} * (loop + 1) / 2);
  }
}

TEST(ThreadPool, GivesEachThreadAnIndexOfItsOwn) {
  ThreadPool pool(3);
  std::array<std::atomic<int>, 3> inside{};
  std::atomic<bool> shared = false;
  for (int loop = 0; loop < 200; ++loop)
    pool.run(30, [&](int thread, int) {
      if (inside.at(static_cast<std::size_t>(thread)).fetch_add(1) != 0) shared = true;
      for (int i = 0; i < 100; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);  // some time
      --inside.at(static_cast<std::size_t>(thread));
    });
  EXPECT_FALSE(shared) << "two threads had the same index at the same time";
}

TEST(ThreadPool, RunsALoopInsideOfALoopOnTheSameThread) {
  ThreadPool pool(2);
  std::atomic<int> runs = 0, elsewhere = 0;
  pool.run(4, [&](int, int) {
    const std::thread::id outer = std::this_thread::get_id();
    pool.run(4, [&](int thread, int) {
      ++runs;
      if (std::this_thread::get_id() != outer || thread != 0) ++elsewhere;
    });
  });
  EXPECT_EQ(runs, 16);
  EXPECT_EQ(elsewhere, 0);
}

TEST(ThreadPool, ServesOneOfSeveralCallingThreadsAtATime) {
  ThreadPool pool(2);
  std::array<std::int64_t, 3> sums{};
  std::vector<std::thread> callers;
  for (std::int64_t& sum : sums)
    callers.emplace_back([&pool, &sum] {
      for (int loop = 0; loop < 2000; ++loop) {
        std::array<int, 4> pieces{};
        pool.run(4, [&](int, int piece) { pieces[static_cast<std::size_t>(piece)] = piece + 1; });
        sum += std::accumulate(pieces.begin(), pieces.end(), 0);
      }
    });
  for (std::thread& caller : callers) caller.join();
  for (const std::int64_t sum : sums) EXPECT_EQ(sum, 20000);
}

// The workers wake up for the loop, whose pieces the calling thread has taken, while the pool is being destroyed.
TEST(ThreadPool, EndsWorkersThatAreJustWakingUp) {
  std::atomic<int> pieces = 0;
  constexpr int kPools = 5000;
  for (int i = 0; i < kPools; ++i) {
    ThreadPool pool(3);
    for (int loop = 0; loop < 3; ++loop) pool.run(3, [&](int, int) { ++pieces; });
  }
  EXPECT_EQ(pieces, 9 * kPools);
}

/// Blocks until `flag` is set, at most 20 seconds.
void wait_for(const std::atomic<bool>& flag) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!flag && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
}

TEST(ThreadPool, TheCallerTakesThePiecesOfASlowWorker) {
  ThreadPool pool(2);
  std::atomic<int> of_caller = 0;
  std::atomic<bool> worker_has_begun = false;
  pool.run(40, [&](int thread, int) {  // each thread begins with a share of 20
    if (thread == 0) {
      wait_for(worker_has_begun);
      ++of_caller;
    } else {
      worker_has_begun = true;
      std::this_thread::sleep_for(200ms);
    }
  });
  EXPECT_EQ(of_caller, 39) << "the worker finishes the piece that it began";
}

cpu_set_t cores_of_this_thread() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  return cores;
}

// A sleeping thread is like one that the operating system has suspended: its processor time stands still.
TEST(ThreadPool, MovesASuspendedWorkerToTheCoreOfTheCaller) {
  ThreadPool pool(2);
  const cpu_set_t allowed = cores_of_this_thread();
  std::atomic<int> runs = 0;
  std::atomic<bool> worker_has_begun = false;
  const auto meet = [&](auto at_worker) {
    worker_has_begun = false;
    pool.run(2, [&](int thread, int) {
      ++runs;
      if (thread == 0) {
        wait_for(worker_has_begun);
      } else {
        worker_has_begun = true;
        at_worker();
      }
    });
  };
  meet([] { std::this_thread::sleep_for(50ms); });
  EXPECT_EQ(runs, 2);
  EXPECT_GE(pool.moves(), 1);

  cpu_set_t worker{};
  meet([&] { worker = cores_of_this_thread(); });
  if (CPU_COUNT(&allowed) > 1) {
    EXPECT_EQ(CPU_COUNT(&worker), CPU_COUNT(&allowed) - 1) << "the caller's core is left out";
  }

  std::this_thread::sleep_for(200ms);
  meet([&] { worker = cores_of_this_thread(); });
  EXPECT_TRUE(CPU_EQUAL(&worker, &allowed)) << "the worker may use all cores again";
  const cpu_set_t caller = cores_of_this_thread();
  EXPECT_TRUE(CPU_EQUAL(&caller, &allowed));
}

}  // namespace
}  // namespace convoy

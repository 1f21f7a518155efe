#include "convoy/kernels/runtime/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace convoy {
namespace {

using Pieces = std::vector<std::pair<std::int64_t, std::int64_t>>;

Pieces pieces_of(const CpuStream& stream, std::int64_t n, std::int64_t grain) {
  Pieces pieces;
  std::mutex mutex;
  parallel_for(stream, n, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(mutex);
    pieces.emplace_back(begin, end);
  });
  std::sort(pieces.begin(), pieces.end());
  return pieces;
}

TEST(ParallelFor, CoversEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    const CpuStream stream({.threads = threads});
    for (const std::int64_t n : {0, 1, 2, 31, 32, 33, 255, 257, 100003}) {
      for (const std::int64_t grain : {0, 1, 2, 33, 1024, 1000000}) {
        SCOPED_TRACE(::testing::Message() << threads << " threads, n " << n << ", grain " << grain);
        const Pieces pieces = pieces_of(stream, n, grain);
        ASSERT_LE(std::ssize(pieces), threads == 1 ? 1 : kPiecesPerThread * threads);
        std::int64_t next = 0;
        for (const auto& [begin, end] : pieces) {
          ASSERT_EQ(begin, next);
          ASSERT_GT(end, begin) << "an empty piece";
          ASSERT_GE(end - begin, std::min(grain, n));
          next = end;
        }
        ASSERT_EQ(next, n);
      }
    }
  }
}

TEST(ParallelFor, MakesSeveralPiecesPerThreadIfThereIsEnoughWork) {
  EXPECT_EQ(pieces_of(CpuStream({.threads = 3}), 10000, 100).size(), 3u * kPiecesPerThread);
  EXPECT_EQ(pieces_of(CpuStream({.threads = 3}), 300, 100).size(), 3u);
  EXPECT_EQ(pieces_of(CpuStream({.threads = 3}), 299, 100).size(), 2u);
  EXPECT_EQ(pieces_of(CpuStream({.threads = 1}), 10000, 100).size(), 1u);
}

TEST(ParallelForEach, CallsEachItemOnce) {
  const CpuStream stream({.threads = 3});
  for (const std::int64_t items : {0, 1, 2, 100, 70000}) {
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(items));
    std::atomic<bool> in_range = true;
    parallel_for_each(stream, items, [&](int thread, std::int64_t item) {
      ++calls[static_cast<std::size_t>(item)];
      if (thread < 0 || thread >= 3) in_range = false;
    });
    EXPECT_TRUE(std::all_of(calls.begin(), calls.end(), [](const auto& n) { return n == 1; })) << items;
    EXPECT_TRUE(in_range) << items;
  }
}

TEST(ParallelFor, RunsOnSeveralThreadsAtOnce) {
  const CpuStream stream({.threads = 2});
  std::atomic<int> started = 0, concurrent = 0;
  parallel_for(stream, 2, 1, [&](std::int64_t, std::int64_t) {
    ++started;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (started < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (started == 2) ++concurrent;
  });
  EXPECT_EQ(concurrent, 2) << "the pieces ran one after the other";
}

TEST(ParallelFor, SupportsThreadsWithTheirOwnStreams) {
  constexpr std::int64_t kItems = 1000;
  std::vector<std::int64_t> sums(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < sums.size(); ++t)
    threads.emplace_back([&sums, t] {
      const CpuStream stream({.threads = 1});
      parallel_for(stream, kItems, 1, [&](std::int64_t begin, std::int64_t end) { sums[t] += end - begin; });
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::int64_t sum : sums) EXPECT_EQ(sum, kItems);
}

}  // namespace
}  // namespace convoy

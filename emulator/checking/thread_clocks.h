// The order of the threads of a block that mbarriers and named barriers establish.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace convoy::emulator {

/// Vector clocks of the threads of a block, and of its warps' reads by tensor cores. They exist from the first
/// mbarrier or named barrier on: until then, __syncthreads() and __syncwarp() order everything (races.h).
class ThreadClocks {
 public:
  using Time = std::uint32_t;       // 0: before all others
  using Clock = std::vector<Time>;  // by thread, then by warp; empty: all 0

  /// The clocks of the running block; null if no kernel runs.
  static inline ThreadClocks* running = nullptr;

  void begin_block(unsigned threads) {
    threads_ = threads;
    clocks_.clear();
    reads_.assign((threads + kLanes - 1) / kLanes, 0);
  }
  bool are_active() const { return !clocks_.empty(); }
  void activate() {
    if (are_active()) return;
    clocks_.assign(threads_, Clock(threads_ + reads_.size(), 0));
    for (unsigned thread = 0; thread < threads_; ++thread) clocks_[thread][thread] = 1;
  }

  /// Returns what the thread has done and seen.
  Clock of(unsigned thread) const { return are_active() ? clocks_[thread] : Clock(); }
  /// Returns the time of the thread's next access.
  Time now(unsigned thread) const { return are_active() ? clocks_[thread][thread] : 0; }
  /// Returns whether an access of `other` at a time comes before the next one of `thread`.
  bool has_seen(unsigned thread, unsigned other, Time time) const {
    return thread == other || time == 0 || (are_active() && clocks_[thread][other] >= time);
  }
  /// Adds what the thread has done and seen so far to a clock.
  void release(unsigned thread, Clock& to) {
    if (!are_active()) return;
    raise(to, clocks_[thread]);
    ++clocks_[thread][thread];
  }
  /// The thread has seen what a clock has.
  void acquire(unsigned thread, const Clock& from) {
    if (are_active()) raise(clocks_[thread], from);
  }
  /// All these threads have reached a barrier.
  void join(const std::vector<unsigned>& threads) {
    if (!are_active()) return;
    Clock all;
    for (const unsigned thread : threads) release(thread, all);
    for (const unsigned thread : threads) acquire(thread, all);
  }

  /// The tensor cores read for a warp. Returns the time of this read, as one of thread number reader().
  Time read(unsigned warp) { return ++reads_[warp]; }
  unsigned reader(unsigned warp) const { return threads_ + warp; }
  /// The thread has waited for its warp's reads.
  void see_reads(unsigned thread) {
    if (are_active()) clocks_[thread][reader(thread / kLanes)] = reads_[thread / kLanes];
  }

 private:
  static constexpr unsigned kLanes = 32;
  static void raise(Clock& to, const Clock& from) {
    if (to.size() < from.size()) to.resize(from.size(), 0);
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
  }

  unsigned threads_ = 0;
  std::vector<Clock> clocks_;
  std::vector<Time> reads_;  // by warp
};

}  // namespace convoy::emulator

// Finds accesses of one memory location by two threads of a block that no barrier separates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "emulator/checking/thread_clocks.h"

namespace convoy::emulator {

enum class AccessKind : std::uint8_t { load, store, atomic };

/// Two accesses in conflict. The first one is earlier in this run; on a GPU either may come first.
struct Race {
  unsigned first_thread;
  AccessKind first_kind;
  const void* first_site;
};

/// The accesses of the threads of one block, or of the blocks of a cluster, in memory words of 4 bytes. Two accesses
/// of a byte by different threads are a race if one of them is a store, not both are atomic, and neither
///   - a __syncthreads() of the block is between them, nor
///   - a __syncwarp() whose mask has both lanes (or a chain of them), nor
///   - an mbarrier or a named barrier (or a chain of them; ThreadClocks::running), nor
///   - a barrier of the cluster, where the first thread arrives after its access, and for which the second one has
///     waited before its own.
/// Shuffles and votes do not order memory accesses (CUDA C++ Programming Guide, "Warp Shuffle Functions").
/// The check is exact for the accesses of this run, in whatever order the threads ran.
class BlockRaces {
 public:
  /// Forgets all accesses. `threads` is the size of a block. Threads have numbers in the cluster: those of block r begin
  /// at r * stride().
  void begin_block(unsigned threads, unsigned blocks);
  unsigned stride() const { return stride_; }
  /// Adds an access of `thread`. Returns an earlier access in conflict. Those of two blocks conflict only if
  /// `is_shared`: in global memory, other operations may order them (block_order.h).
  std::optional<Race> access(unsigned thread, std::uintptr_t begin, std::size_t bytes, AccessKind kind,
                             const void* site, bool is_shared);
  /// The threads of block `rank` have reached a __syncthreads().
  void barrier(unsigned rank);
  /// A thread has arrived at the barrier of the cluster, or has waited for it; all threads have arrived.
  void cluster_arrive(unsigned thread) { ++arrived_[thread]; }
  void cluster_wait(unsigned thread) { waited_[thread] = arrived_[thread]; }
  void cluster_barrier() { epochs_of_barriers_.push_back(block_epochs_); }
  unsigned arrived(unsigned thread) const { return arrived_[thread]; }
  unsigned waited(unsigned thread) const { return waited_[thread]; }
  /// Returns the last barrier of the cluster for which a thread of block `rank` has waited.
  unsigned waited_of_block(unsigned rank) const;
  /// The lanes of `mask` of a warp have executed __syncwarp().
  void warp_barrier(unsigned warp, unsigned mask);

 private:
  static constexpr unsigned kLanes = 32;
  /// The last access of a thread to some bytes of a word.
  struct Touch {
    unsigned thread;
    std::uint32_t turn;     // the thread's warp barriers so far
    std::uint32_t epoch;    // the block's barriers so far
    std::uint32_t arrived;  // the thread's arrivals at the barrier of the cluster
    ThreadClocks::Time time;
    std::uint8_t bytes;  // a bit per byte of the word
    AccessKind kind;
    const void* site;
  };
  struct Word {
    std::uint64_t epoch = 0;
    std::vector<Touch> touches;  // those after which no other one comes that is in conflict whenever they are
  };

  bool is_before(const Touch& touch, unsigned thread) const;
  bool has_clock() const { return ThreadClocks::running != nullptr && ThreadClocks::running->are_active(); }

  std::uint64_t epoch_ = 1;  // of words that are kept: barriers so far, of all blocks; of a cluster, one
  unsigned stride_ = kLanes;
  std::vector<std::uint32_t> block_epochs_;      // barriers so far, of each block
  std::vector<std::uint32_t> arrived_, waited_;  // of each thread, the barriers of the cluster
  std::vector<std::vector<std::uint32_t>>
      epochs_of_barriers_;  // block_epochs_ when each of them was complete
  /// [thread][lane]: how many warp barriers of that lane of its warp are before the next access of the
  /// thread.
  std::vector<std::array<std::uint32_t, kLanes>> seen_;
  std::unordered_map<std::uintptr_t, Word> words_;
};

}  // namespace convoy::emulator

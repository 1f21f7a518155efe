// Finds accesses of one memory location by two threads of a block that no barrier separates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace convoy::emulator {

enum class AccessKind : std::uint8_t { load, store, atomic };

/// Two accesses in conflict. The first one is earlier in this run; on a GPU either may come first.
struct Race {
  unsigned first_thread;
  AccessKind first_kind;
  const void* first_site;
};

/// The accesses of the threads of one block, in memory words of 4 bytes. Two accesses of a byte by different
/// threads are a race if one of them is a store, not both are atomic, and neither
///   - a __syncthreads() of the block is between them, nor
///   - a __syncwarp() whose mask has both lanes (or a chain of them).
/// Shuffles and votes do not order memory accesses (CUDA C++ Programming Guide, "Warp Shuffle Functions").
/// The check is exact for the accesses of this run, in whatever order the threads ran.
class BlockRaces {
 public:
  /// Forgets all accesses. `threads` is the size of the block.
  void begin_block(unsigned threads);
  /// Adds an access of `thread`. Returns an earlier access in conflict.
  std::optional<Race> access(unsigned thread, std::uintptr_t begin, std::size_t bytes, AccessKind kind,
                             const void* site);
  void barrier() { ++epoch_; }
  /// The lanes of `mask` of a warp have executed __syncwarp().
  void warp_barrier(unsigned warp, unsigned mask);

 private:
  static constexpr unsigned kLanes = 32;
  /// The last access of a thread to some bytes of a word.
  struct Touch {
    unsigned thread;
    std::uint32_t turn;  // the thread's warp barriers so far
    std::uint8_t bytes;  // a bit per byte of the word
    AccessKind kind;
    const void* site;
  };
  struct Word {
    std::uint64_t epoch = 0;
    std::vector<Touch> touches;  // those after which no other one comes that is in conflict whenever they are
  };

  bool is_before(const Touch& touch, unsigned thread) const;

  std::uint64_t epoch_ = 1;  // barriers so far, of all blocks
  /// [thread][lane]: how many warp barriers of that lane of its warp are before the next access of the
  /// thread.
  std::vector<std::array<std::uint32_t, kLanes>> seen_;
  std::unordered_map<std::uintptr_t, Word> words_;
};

}  // namespace convoy::emulator

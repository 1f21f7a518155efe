// Arena: allocates the large blocks of a caching allocator from segments of its memory source.
// FreeRanges: what is free of them, in an arena or in a pool.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace convoy {

class MemorySource;

/// Free ranges of memory, which are divided and merged.
class FreeRanges {
 public:
  using Ranges = std::map<std::byte*, std::size_t>;  // begin -> bytes

  /// Returns the first `bytes` bytes of the smallest range that has so many, or nullptr if none has.
  void* take(std::size_t bytes);
  /// Adds a range, merged with the adjacent ones of its segment.
  void add(void* block, std::size_t bytes, const Ranges& segments);
  /// Removes a range.
  void erase(std::byte* begin);
  /// Returns the ranges, of which no two of a segment are adjacent.
  const Ranges& ranges() const { return ranges_; }
  /// Returns the number of bytes in all ranges.
  std::size_t bytes() const { return bytes_; }

 private:
  void insert(std::byte* begin, std::size_t bytes);

  Ranges ranges_;
  std::set<std::pair<std::size_t, std::byte*>> by_size_;  // the same ranges, ordered by size, then by address
  std::size_t bytes_ = 0;
};

/// A best-fit allocator with coalescing. A request is cut from the smallest free range that is large enough,
/// and a released block is merged with adjacent free ranges. A training step frees many small activations
/// before it needs a few large gradients. Size classes could not reuse the one for the other. With an arena,
/// the memory held stays near the peak of the memory in use. Not thread-safe; the allocator locks.
class Arena {
 public:
  /// Creates an arena on `source`, which must outlive it. If source.segment_bytes() is 0, the arena serves no
  /// blocks.
  explicit Arena(MemorySource& source);

  /// Returns whether the arena handles blocks of this size (2 MiB or more). Smaller blocks would fragment the
  /// large ranges.
  bool serves(std::size_t bytes) const;
  /// Returns `bytes` rounded up to whole pages. The other functions expect sizes that are rounded up like
  /// this.
  static std::size_t rounded(std::size_t bytes);

  /// Returns a block from released memory, or nullptr if no free range is large enough.
  void* reuse(std::size_t bytes) { return free_.take(bytes); }
  /// Returns a block of memory that has never been used. Allocates a new segment from the source if
  /// necessary. Returns nullptr if the source has no memory left.
  void* extend(std::size_t bytes);
  /// Returns a block to the arena.
  void release(void* block, std::size_t bytes) { free_.add(block, bytes, segments_); }
  /// Returns the number of bytes in free ranges, without memory that has never been used.
  std::size_t free_bytes() const { return free_.bytes(); }
  /// Returns the segments, begin -> bytes.
  const FreeRanges::Ranges& segments() const { return segments_; }
  /// Returns segments without blocks in use to the source.
  void trim() noexcept;

 private:
  bool add_segment(std::size_t bytes);

  MemorySource& source_;
  std::size_t segment_bytes_;
  FreeRanges::Ranges segments_;
  FreeRanges free_;
  std::byte* untouched_ = nullptr;  // begin of the unused rest of the newest segment
  std::byte* end_ = nullptr;        // end of the newest segment
};

}  // namespace convoy

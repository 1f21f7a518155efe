// Large blocks of a caching allocator, cut from segments of its source's memory.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace convoy {

class MemorySource;

/// A training step frees many small activations before it needs a few large gradients. Kept by size class,
/// neither could become the other; here a block that comes back joins its free neighbours, and a request is
/// cut from the smallest free range that is large enough. So what is held stays near what was ever in use at
/// once. Not thread-safe: the allocator locks.
class Arena {
 public:
  /// A source without segments gives an arena that is never used.
  explicit Arena(MemorySource& source);

  /// Whether blocks of so many bytes are its affair. Smaller ones are not: they would cut up the large
  /// ranges.
  bool serves(std::size_t bytes) const;
  static std::size_t rounded(std::size_t bytes);  // to whole pages

  // Sizes are rounded ones from here on.

  /// A block of what has been handed out before; nullptr where no free range is large enough.
  void* reuse(std::size_t bytes);
  /// A block of memory that nobody has touched yet, which may take another segment from the source; nullptr
  /// where that has no more.
  void* extend(std::size_t bytes);
  void release(void* block, std::size_t bytes);
  /// Bytes of free ranges, without what nobody has touched yet.
  std::size_t free_bytes() const { return free_bytes_; }
  /// Gives segments of which nothing is in use back to the source.
  void trim() noexcept;

 private:
  bool add_segment(std::size_t bytes);
  void insert(std::byte* begin, std::size_t bytes);
  void erase(std::byte* begin, std::size_t bytes);

  MemorySource& source_;
  std::size_t segment_bytes_;
  std::map<std::byte*, std::size_t> segments_;            // begin -> bytes
  std::map<std::byte*, std::size_t> free_;                // the same of free ranges, none beside another
  std::set<std::pair<std::size_t, std::byte*>> by_size_;  // the same ranges: the lowest of the smallest first
  std::size_t free_bytes_ = 0;
  std::byte* untouched_ = nullptr;  // the rest of the newest segment
  std::byte* end_ = nullptr;
};

}  // namespace convoy

// MemoryListener: learns of every allocation and release, as a memory profile needs it.
#pragma once

#include <cstddef>

namespace convoy {

class CachingAllocator;

/// An object that is called by all allocators of this process. One listener at a time is active.
class MemoryListener {
 public:
  virtual ~MemoryListener() = default;
  /// Called after `allocator` has handed out a block of `bytes` bytes, with rounding. The allocator is
  /// locked, so the function must not call it. Several threads may call the function at the same time.
  virtual void allocated(const CachingAllocator& allocator, const void* block,
                         std::size_t bytes) noexcept = 0;
  /// Called before a block is released, under the same conditions.
  virtual void released(const CachingAllocator& allocator, const void* block, std::size_t bytes) noexcept = 0;

  /// Returns the active listener; null if there is none.
  static MemoryListener* active();
  /// Replaces it. A null pointer ends the calls. `listener` must live until no thread allocates any more, or
  /// until it is replaced and all allocations that had begun by then have ended.
  static void activate(MemoryListener* listener);
};

}  // namespace convoy

// A caching allocator. Every training step requests the same sizes, so released blocks are kept and reused.
// Small blocks are kept by size class, and large blocks of the host and of GPUs in an arena. After the first steps,
// allocation makes no system calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convoy/kernels/runtime/memory/arena.h"

namespace convoy {

/// A source of memory blocks: aligned host memory, GPU memory (cudaMalloc) or pinned host memory. A
/// CachingAllocator calls its source under a mutex, so a source need not be thread-safe.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Returns a block that is aligned to at least 64 bytes, or nullptr if there is not enough memory.
  virtual void* allocate(std::size_t bytes) = 0;
  /// Releases a block of allocate(bytes).
  virtual void release(void* block, std::size_t bytes) noexcept = 0;
  /// Returns the size of the segments from which an arena cuts large blocks, or 0 to allocate each block
  /// separately. Large segments suit memory that costs nothing until it is touched.
  virtual std::size_t segment_bytes() const { return 0; }
  /// Returns the number of free bytes, or 0 if the source does not know it.
  virtual std::size_t free_bytes() const { return 0; }
  /// Returns the name for error messages: "cpu", "cuda:0".
  virtual std::string name() const = 0;
  /// Returns the end of the out-of-memory message: what the user can do.
  virtual std::string advice() const { return "use smaller batches"; }
};

/// Returns a source of pageable host memory. Blocks of 2 MiB or more use transparent huge pages if available.
std::unique_ptr<MemorySource> host_memory();

/// Statistics of an allocator. Sizes are in bytes and include the rounding to size classes or pages.
struct MemoryStats {
  std::size_t in_use = 0;          // allocated, or reserved by a pool
  std::size_t in_pools = 0;        // reserved by pools, whether allocated or free there; part of in_use
  std::size_t peak_in_use = 0;     // maximum of in_use since the start or reset_peak()
  std::size_t cached = 0;          // free, and kept for later allocations
  std::uint64_t source_calls = 0;  // allocations that the cache could not serve; constant in a steady state
};

class CachingAllocator;

/// A private set of an allocator's blocks for a CUDA graph. No other code may use the addresses of a graph
/// while it can be replayed. All blocks of a pool count as in use. Thread-safe.
class MemoryPool {
 public:
  /// Creates an empty pool of `allocator`, which must outlive it.
  explicit MemoryPool(CachingAllocator& allocator) : allocator_(allocator) {}
  /// Returns free blocks to the allocator. Blocks still in use return to it when they are released.
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// Returns the total size of the pool's blocks.
  std::size_t bytes() const;

  /// A scope guard that directs the allocations of the calling thread to the pool. A request is served by a
  /// free block of the pool, else by a block of the allocator, which then belongs to the pool. Other threads
  /// are not affected. While a scope is open, the allocator releases no block to its source: the source might
  /// wait for the device, which cannot be captured. A thread can open one scope per allocator at a time; a
  /// second one throws UsageError.
  class Scope {
   public:
    /// Opens the scope for the calling thread, which also closes it. `pool` must outlive the scope.
    explicit Scope(MemoryPool& pool);
    /// Closes the scope.
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CachingAllocator& allocator_;
    std::thread::id thread_ = std::this_thread::get_id();
  };

 private:
  friend class CachingAllocator;
  CachingAllocator& allocator_;
  // All are protected by the allocator's mutex.
  std::map<std::size_t, std::vector<void*>> free_;  // size class -> free blocks
  FreeRanges ranges_;                               // the free large blocks
  std::size_t bytes_ = 0;                           // of all blocks
};

/// An allocator that keeps released blocks for later allocations. Thread-safe.
class CachingAllocator {
 public:
  /// Whether released blocks are kept. The policy `exact` neither keeps blocks nor rounds sizes, so that
  /// memory checkers such as AddressSanitizer see each request as a block. It is slow, because the release to
  /// a source may wait for the device.
  enum class Policy : std::uint8_t { caching, exact };
  /// Returns `exact` if the environment has CONVOY_MEMORY_CACHE=off, else `caching`.
  static Policy policy_from_environment();

  /// Creates an allocator on `source`. limit: the maximum number of bytes to hold, in use and cached; 0 means
  /// no limit.
  CachingAllocator(std::unique_ptr<MemorySource> source, std::size_t limit, Policy policy = Policy::caching);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Returns a block of at least `bytes` bytes, or nullptr if `bytes` is 0. If the source has no memory left,
  /// releases all cached blocks and tries again. Throws DeviceError if that fails, too. The message states
  /// the request, the memory in use, and what to lower.
  void* allocate(std::size_t bytes);
  /// Releases a block of allocate(bytes). A null block is ignored.
  void release(void* block, std::size_t bytes) noexcept;

  /// Returns the statistics at this moment.
  MemoryStats stats() const;
  /// Begins a new maximum of the memory in use.
  void reset_peak();
  /// Returns an estimate of the bytes that can still be allocated: free bytes of the source plus cached
  /// bytes. Other processes may use the same memory.
  std::size_t available() const;
  /// Releases all cached blocks to the source. Does nothing while a pool scope is open.
  void trim() noexcept;
  /// Replaces the observer of large allocations: a function that gets the size of each block of at least
  /// `min_bytes` that the cache could not serve. The allocator calls it under its mutex, on the thread that
  /// allocates, so it must not allocate from this allocator.
  void set_observer(std::size_t min_bytes, std::function<void(std::size_t)> observer);

  /// Returns the size of the block that serves a request: multiples of 64 up to 512 bytes, then eight size
  /// classes per power of two. At most an eighth of a larger block is wasted.
  static std::size_t size_class(std::size_t bytes);

 private:
  friend class MemoryPool;
  using Blocks = std::map<std::size_t, std::vector<void*>>;  // by size class

  static void* take(Blocks& blocks, std::size_t size);
  void* from_cache(std::size_t size);
  void* from_source(std::size_t size);
  void give_back(void* block, std::size_t size) noexcept;
  void trim_locked() noexcept;
  MemoryPool* pool_of_this_thread() const;
  std::size_t taken_for(std::size_t bytes) const;  // the size of the block that serves a request
  bool by_arena(std::size_t size) const { return policy_ == Policy::caching && arena_.serves(size); }
  std::size_t cached() const { return stats_.cached + arena_.free_bytes(); }

  std::unique_ptr<MemorySource> source_;
  std::size_t limit_;
  Policy policy_;
  std::size_t observed_bytes_ = 0;
  std::function<void(std::size_t)> observer_;  // empty: none
  mutable std::mutex mutex_;
  Blocks free_;
  Arena arena_;
  std::unordered_map<void*, MemoryPool*> pooled_;  // the pool of each block that belongs to one
  std::map<std::thread::id, MemoryPool*> scopes_;  // the pool of each open scope
  MemoryStats stats_;                              // without the bytes that the arena caches
};

/// Returns a size with a binary unit: "1.50 GiB", "640 B".
std::string format_bytes(std::size_t bytes);

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

// A caching allocator: a training step asks for the same sizes every time, so freed blocks are kept, small
// ones by size class and large ones of the host in an arena, and handed out again; after the first steps no
// system call is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/runtime/arena.h"

namespace convoy {

/// Where blocks come from: aligned host memory, cudaMalloc, pinned memory.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// nullptr where there is no more. Blocks are aligned to 64 bytes or better.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* block, std::size_t bytes) noexcept = 0;
  /// How much to ask for at once, so that large blocks can be cut from it: where memory costs nothing until
  /// it is touched. 0: each block is asked for alone.
  virtual std::size_t segment_bytes() const { return 0; }
  /// What may still be had, in bytes; 0 where the source cannot tell.
  virtual std::size_t free_bytes() const { return 0; }
  virtual std::string name() const = 0;  // "cpu", "cuda:0": for messages
  /// What to do where there is no more: the end of the message.
  virtual std::string advice() const { return "lower --batch-size or --micro-batch-size"; }
};

std::unique_ptr<MemorySource> host_memory();

/// All in bytes, counted in whole size classes or pages (what is really held).
struct MemoryStats {
  std::size_t in_use = 0;    // by somebody, or reserved by a pool
  std::size_t in_pools = 0;  // the part of it that pools have reserved, whether somebody holds it or not
  std::size_t peak_in_use = 0;
  std::size_t cached = 0;          // held, and free to be handed out
  std::uint64_t source_calls = 0;  // allocations that nothing held could serve; constant in a steady state
};

class CachingAllocator;

/// Blocks set apart from an allocator's others, for work that is recorded once and replayed often: its
/// addresses may be nobody else's as long as it may be replayed. All of a pool counts as in use.
class MemoryPool {
 public:
  explicit MemoryPool(CachingAllocator& allocator) : allocator_(allocator) {}
  /// Blocks that nobody holds go back to the allocator; those held do when they are released.
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  std::size_t bytes() const;

  /// While it lives, the thread that made it gets all that it allocates from the pool: a block that was
  /// released to the pool, else one of the allocator's, which from then on is the pool's. Other threads
  /// notice nothing but that the allocator gives no block back to its source meanwhile, since a source may
  /// wait for the device then, which cannot be recorded. One at a time for a thread and an allocator.
  class Scope {
   public:
    explicit Scope(MemoryPool& pool);
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
  // Under the allocator's lock:
  std::map<std::size_t, std::vector<void*>> free_;  // size class -> blocks that nobody holds
  std::size_t bytes_ = 0;                           // of all its blocks
};

/// Thread-safe: loader threads allocate too.
class CachingAllocator {
 public:
  /// Exact: nothing is kept or rounded up, so that tools which guard blocks see each request as one (slow: a
  /// source's release may wait for the device).
  enum class Policy : std::uint8_t { caching, exact };
  /// Exact where the environment has CONVOY_MEMORY_CACHE=off.
  static Policy policy_from_environment();

  /// limit: most bytes to hold, 0 for no limit of its own.
  CachingAllocator(std::unique_ptr<MemorySource> source, std::size_t limit, Policy policy = Policy::caching);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// At least `bytes` (0 gives a null pointer). Throws DeviceError with what was asked, what is in use, and
  /// what to lower, after having given back every cached block and tried again.
  void* allocate(std::size_t bytes);
  /// `bytes` as it was asked for.
  void release(void* block, std::size_t bytes) noexcept;

  MemoryStats stats() const;
  /// What may still be handed out, in bytes, as far as the source can tell: others may take it meanwhile.
  std::size_t available() const;
  void reset_peak();
  /// Gives all cached blocks back to the source, unless a pool's scope forbids that now.
  void trim() noexcept;

  /// Bytes actually taken for a request: 64-byte multiples up to 512, then eight classes for each power of
  /// two, so that at most an eighth is wasted.
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
  std::size_t taken_for(std::size_t bytes) const;  // by the policy
  bool by_arena(std::size_t size) const { return policy_ == Policy::caching && arena_.serves(size); }
  std::size_t cached() const { return stats_.cached + arena_.free_bytes(); }

  std::unique_ptr<MemorySource> source_;
  std::size_t limit_;
  Policy policy_;
  mutable std::mutex mutex_;
  Blocks free_;
  Arena arena_;
  std::unordered_map<void*, MemoryPool*> pooled_;  // whose blocks are a pool's
  std::map<std::thread::id, MemoryPool*> scopes_;  // open ones
  MemoryStats stats_;                              // but for what the arena has cached
};

/// "1.50 GiB", "640 B".
std::string format_bytes(std::size_t bytes);

}  // namespace convoy

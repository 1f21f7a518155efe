// A caching allocator: a training step asks for the same sizes every time, so freed blocks are kept by size
// class and handed out again; after the first steps no system call is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace convoy {

/// Where blocks come from: aligned host memory, cudaMalloc, pinned memory.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// nullptr where there is no more. Blocks are aligned to 64 bytes or better.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* block, std::size_t bytes) noexcept = 0;
  /// What may still be had, in bytes; 0 where the source cannot tell.
  virtual std::size_t free_bytes() const { return 0; }
  virtual std::string name() const = 0;  // "cpu", "cuda:0": for messages
  /// What to do where there is no more: the end of the message.
  virtual std::string advice() const { return "lower --batch-size or --micro-batch-size"; }
};

std::unique_ptr<MemorySource> host_memory();

/// All in bytes, counted in whole size classes (what is really held).
struct MemoryStats {
  std::size_t in_use = 0;
  std::size_t peak_in_use = 0;
  std::size_t cached = 0;          // held, and free to be handed out
  std::uint64_t source_calls = 0;  // allocations that reached the source; constant in a steady state
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
  /// Gives all cached blocks back to the source.
  void trim() noexcept;

  /// Bytes actually taken for a request: 64-byte multiples up to 512, then eight classes for each power of
  /// two, so that at most an eighth is wasted.
  static std::size_t size_class(std::size_t bytes);

 private:
  void trim_locked() noexcept;
  std::size_t taken_for(std::size_t bytes) const;  // by the policy
  void* from_source(std::size_t size);

  std::unique_ptr<MemorySource> source_;
  std::size_t limit_;
  Policy policy_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;  // size class -> blocks
  MemoryStats stats_;
};

/// "1.50 GiB", "640 B".
std::string format_bytes(std::size_t bytes);

}  // namespace convoy

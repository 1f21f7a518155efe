// Temporary memory of CPU kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "convoy/kernels/runtime/memory/memory.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

/// An uninitialized block of memory for one kernel call. The block comes from the stream's caching allocator
/// and is returned on destruction. Kernels and tensors therefore reuse the same blocks, and a steady state
/// requests no memory from the system.
class Workspace {
 public:
  explicit Workspace(CpuStream& stream) : memory_(stream.memory()) {}
  ~Workspace() { memory_.release(block_, bytes_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Returns a block of at least `bytes` bytes. If the current block is smaller, releases it and its contents
  /// are lost. Throws if the allocation fails.
  void* get(std::size_t bytes) {
    if (bytes <= bytes_) return block_;
    memory_.release(block_, bytes_);  // before allocating the larger block
    block_ = nullptr;
    bytes_ = 0;
    block_ = memory_.allocate(bytes);
    bytes_ = bytes;
    return block_;
  }

  /// As get(), for `count` elements of type T.
  template <class T>
  T* array(std::int64_t count) {
    return static_cast<T*>(get(static_cast<std::size_t>(count) * sizeof(T)));
  }

 private:
  CachingAllocator& memory_;
  void* block_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace convoy::kernels

// Working memory of a kernel.
#pragma once

#include <cstddef>

#include "kernels/runtime/memory.h"
#include "kernels/runtime/stream.h"

namespace convoy {

/// Of one call, uninitialised: from the stream's allocator, to which it goes back at the end. So kernels
/// share it with one another and with tensors, and a steady state still asks the system for nothing.
class Workspace {
 public:
  explicit Workspace(CpuStream& stream) : memory_(stream.memory()) {}
  ~Workspace() { memory_.release(block_, bytes_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// At least `bytes`; what an earlier call of get() gave is lost where that was less.
  void* get(std::size_t bytes) {
    if (bytes <= bytes_) return block_;
    memory_.release(block_, bytes_);  // before the larger one is asked for
    block_ = nullptr;
    bytes_ = 0;
    block_ = memory_.allocate(bytes);
    bytes_ = bytes;
    return block_;
  }

 private:
  CachingAllocator& memory_;
  void* block_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace convoy

// Readback: an asynchronous copy of a tensor's values from a device to the host.
#pragma once

#include <vector>

#include "convoy/engine/tensor/tensor.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy {

/// A copy of the values that a tensor has once the work enqueued so far is done. Later work may overwrite the
/// tensor. On the CPU the copy is complete after construction. Only the constructor uses the compute stream,
/// so another thread may wait for the values.
class Readback {
 public:
  /// Enqueues the copy on the compute stream of the tensor's device and returns without waiting for it.
  explicit Readback(const Tensor& source);
  /// Blocks until the copy is complete.
  ~Readback();
  Readback(const Readback&) = delete;
  Readback& operator=(const Readback&) = delete;

  /// Returns whether values() would return without blocking.
  bool ready() const { return copied_.reached(); }
  /// Blocks until the copy is complete, then returns the values in row-major order. Accepts any element type.
  std::vector<double> values() const;

 private:
  DeviceContext device_;
  Shape shape_;
  DType dtype_;
  std::size_t bytes_;
  void* host_;  // from the device's staging allocator
  Event copied_;
};

}  // namespace convoy

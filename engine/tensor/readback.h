// A tensor's values on their way to the host, while the device and the host both go on.
#pragma once

#include <vector>

#include "engine/tensor/tensor.h"
#include "kernels/runtime/time_mark.h"

namespace convoy {

/// Copies what the tensor holds when the work so far is done; later work may overwrite it. On the CPU the
/// values are there at once.
class Readback {
 public:
  explicit Readback(const Tensor& source);
  ~Readback();  // waits for the copy
  Readback(const Readback&) = delete;
  Readback& operator=(const Readback&) = delete;

  /// Whether values() would not wait.
  bool ready() const { return copied_.reached(); }
  /// In row-major order; of any element type.
  std::vector<double> values() const;

 private:
  Device device_;
  Shape shape_;
  DType dtype_;
  std::size_t bytes_;
  void* host_;  // staging memory of the device
  TimeMark copied_;
};

}  // namespace convoy

// What convoy-bench-kernels measures: each kernel with the bytes that it has to move.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/runtime/device.h"

namespace convoy::bench {

struct KernelRow {
  std::string name;   // "batch_norm_backward"
  std::string shape;  // of the largest argument
  // Device memory: each array once for every pass over it, vectors of one value a channel left out.
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  /// Makes the arrays on a device; the result enqueues the kernel once, and owns them.
  std::function<std::function<void()>(const Device&)> prepare;
};

/// All kernels in f32, on arrays of about `elements` each. The first row is the copy that others are held
/// against.
std::vector<KernelRow> kernel_rows(std::int64_t elements);

}  // namespace convoy::bench

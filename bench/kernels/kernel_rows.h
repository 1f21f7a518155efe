// The kernels measured by convoy-bench-kernels, with the bytes that each of them moves.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convoy/kernels/runtime/device_context.h"

namespace convoy::bench {

/// A kernel with its arguments.
struct KernelRow {
  std::string name;   // "batch_norm_backward"
  std::string shape;  // of the largest argument
  // Device memory traffic: each array once per pass over it, without vectors of one value per channel.
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t flops = 0;  // of a convolution; 0 where bandwidth is the bound
  /// Allocates the arrays on a device and returns a function that owns them and enqueues the kernel once.
  std::function<std::function<void()>(const DeviceContext&)> prepare;
};

/// Returns all kernels in f32, on arrays of about `elements` elements each. The first row is the copy that
/// the others are compared with.
std::vector<KernelRow> kernel_rows(std::int64_t elements);

/// Returns rows that compute the 3x3 convolutions with stride 1 of ResNet-18 on images of 32x32 pixels, in
/// bf16: forward and the gradients of the input and the filters. Their names are as
/// "conv2d_3x3/32x32x64/forward". They run on GPUs only. `batch` is the number of images.
std::vector<KernelRow> convolution_rows(std::int64_t batch);

}  // namespace convoy::bench

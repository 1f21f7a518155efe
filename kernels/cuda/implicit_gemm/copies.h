// Asynchronous copies of pixels and filters to shared memory.
#pragma once

#include "convoy/kernels/cuda/implicit_gemm/geometry.h"
#include "convoy/kernels/cuda/primitives/async_copy.h"

namespace convoy::kernels::implicit_gemm {

/// Starts to copy a slab of the block's pixels and their halo. Row kZeroRows is the first pixel of the halo.
/// Pixels before the first image and after the last one are zeros.
template <class T, int kPixels>
__device__ void fetch_pixels(const Geometry& g, const T* in, int first_pixel, int slab, unsigned char* to) {
  const int chunks = 2 * (kPixels + 2 * g.halo());
  for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kThreads) {
    const int pixel = first_pixel - g.halo() + i / 2;
    const bool is_inside = pixel >= 0 && pixel < g.pixels;
    const std::int64_t offset =
        is_inside ? std::int64_t{pixel} * g.inputs + slab * kDepth + i % 2 * kPack : 0;
    cuda::copy_async(to + narrow_offset(kZeroRows + i / 2, i % 2), in + offset, is_inside);
  }
}

/// Starts to copy kDepth x kColumns elements for each of the three taps of row `ky`: 16 bytes per thread and
/// tap. Forward, filters are [outputs, 9, inputs]; a row of shared memory has an output channel's inputs.
/// Backward, they are [inputs, 9, outputs], with the taps in the opposite order; a row has an input channel's
/// outputs.
template <class T, bool kBackward>
__device__ void fetch_filters(const Geometry& g, const T* filter, int first_column, int slab, int ky,
                              unsigned char* to) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int kx = 0; kx < kTaps; ++kx, to += kTapBytes) {
    const int tap = kTaps * ky + kx;
    if constexpr (kBackward) {
      const int row = thread / 8, chunk = thread % 8;
      const std::int64_t at = std::int64_t{slab * kDepth + row} * 9 + (8 - tap);
      cuda::copy_async(to + wide_offset(row, chunk), filter + at * g.outputs + first_column + chunk * kPack,
                       true);
    } else {
      const int row = thread / 2, chunk = thread % 2;
      const std::int64_t at = std::int64_t{first_column + row} * 9 + tap;
      cuda::copy_async(to + narrow_offset(row, chunk), filter + at * g.inputs + slab * kDepth + chunk * kPack,
                       true);
    }
  }
}

}  // namespace convoy::kernels::implicit_gemm

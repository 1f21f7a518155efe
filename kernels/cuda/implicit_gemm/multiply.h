// The multiplication of a slab by a row of filters, with mma.sync.
#pragma once

#include "convoy/kernels/cuda/implicit_gemm/result.h"
#include "convoy/kernels/cuda/primitives/tensor_core.h"

namespace convoy::kernels::implicit_gemm {

/// Adds the product of a slab and the three taps of row `ky`. `row` is the row of the slab that this lane
/// addresses in the warp's first tile, and `taps` has taps_inside() of its pixel in each tile.
template <class T, bool kBackward, int kTiles>
__device__ void multiply_by_warps(const Geometry& g, const unsigned char* pixels,
                                  const unsigned char* filters, int ky, int row,
                                  const unsigned (&taps)[kTiles], Sums<kTiles>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int kx = 0; kx < kTaps; ++kx, filters += kTapBytes) {
    std::uint32_t b[kColumns / 16][4];
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j)
      cuda::load_matrices<kBackward>(
          filters + (kBackward ? wide_offset(lane % 16, 2 * j + lane / 16)
                               : narrow_offset(16 * j + lane / 16 * 8 + lane % 8, lane / 8 % 2)),
          b[j]);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      // A tap is a shift by a number of rows. Outside the image, the lane reads zeros in the same banks.
      const int shifted = row + 16 * t + (ky - 1) * g.width + kx - 1;
      const bool is_inside = (taps[t] >> (kTaps * ky + kx) & 1u) != 0;
      std::uint32_t a[4];
      cuda::load_matrices(pixels + narrow_offset(is_inside ? shifted : shifted & (kZeroRows - 1), lane / 16),
                          a);
#pragma unroll
      for (int j = 0; j < kColumns / 16; ++j) {
        cuda::multiply_add<T>(sums[t][2 * j], a, b[j][0], b[j][1]);
        cuda::multiply_add<T>(sums[t][2 * j + 1], a, b[j][2], b[j][3]);
      }
    }
  }
}

}  // namespace convoy::kernels::implicit_gemm

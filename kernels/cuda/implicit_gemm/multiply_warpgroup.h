// The multiplication of a slab by a row of filters with wgmma, for Hopper.
#pragma once

#include "convoy/kernels/cuda/implicit_gemm/result.h"
#include "convoy/kernels/cuda/primitives/tensor_core.h"
#include "convoy/kernels/cuda/primitives/warpgroup.h"

namespace convoy::kernels::implicit_gemm {

static_assert(kWarps == 4 && kColumns == 64 &&
              kDepth == 16);                             // one warpgroup, and the shape of its instruction
static_assert(kTapBytes % cuda::kSharedAlignment == 0);  // so each tap's filters begin where a pattern may

/// The same as multiply_by_warps(): adds the product of a slab and the three taps of row `ky`, with the same rows in
/// each warp. Each instruction multiplies a tile of 16 rows of each of the four warps. While those of a tap run, the
/// warps load the pixels of the next one. All have ended when the function returns.
template <class T, bool kBackward, int kTiles>
__device__ void multiply_by_warpgroup(const Geometry& g, const unsigned char* pixels,
                                      const unsigned char* filters, int ky, int row,
                                      const unsigned (&taps)[kTiles], Sums<kTiles>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t a[2][kTiles][4];  // of this tap and of the next one
  const auto load = [&](int kx) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      // A tap is a shift by a number of rows. Outside the image, the lane reads zeros in the same banks.
      const int shifted = row + 16 * t + (ky - 1) * g.width + kx - 1;
      const bool is_inside = (taps[t] >> (kTaps * ky + kx) & 1u) != 0;
      cuda::load_matrices(pixels + narrow_offset(is_inside ? shifted : shifted & (kZeroRows - 1), lane / 16),
                          a[kx % 2][t]);
    }
  };
#pragma unroll
  for (int t = 0; t < kTiles; ++t) cuda::pin_registers(sums[t]);
  load(0);
#pragma unroll
  for (int kx = 0; kx < kTaps; ++kx) {
    const std::uint64_t b = cuda::matrix_descriptor<kBackward>(filters + kx * kTapBytes);
    cuda::warpgroup_fence();
#pragma unroll
    for (int t = 0; t < kTiles; ++t) cuda::warpgroup_multiply_add<T, kBackward>(sums[t], a[kx % 2][t], b);
    cuda::warpgroup_commit();
    if (kx + 1 < kTaps) {
      cuda::warpgroup_wait<1>();  // those of the previous tap have read the registers that load() sets
      load(kx + 1);
    }
  }
  cuda::warpgroup_wait<0>();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) cuda::pin_registers(sums[t]);
}

}  // namespace convoy::kernels::implicit_gemm

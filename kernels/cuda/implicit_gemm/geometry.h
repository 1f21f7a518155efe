// How the convolutions of this directory lay out their work in blocks and their data in shared memory.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/cuda/primitives/divisor.h"
#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels::implicit_gemm {

inline constexpr int kColumns = 64;  // output channels of a block
inline constexpr int kDepth = 16;    // input channels of a slab: the k of one multiplication
inline constexpr int kPack = 8;      // elements of 16 bytes
inline constexpr int kTaps = 3;      // per row of a filter

// Bytes of shared memory.
inline constexpr int kNarrowRow = 32;             // kDepth channels of a pixel or a filter
inline constexpr int kWideRow = 128;              // kColumns channels
inline constexpr int kZeroRows = 8;               // rows of zeros at the begin of each slab of pixels
inline constexpr int kMaxSharedBytes = 48 << 10;  // that a kernel may use without asking for more

/// The sizes of a convolution. x [pixels, inputs] has the same pixels as y [pixels, outputs].
struct Geometry {
  int pixels, height, width, inputs, outputs;
  cuda::Divisor by_width, by_height;

  Geometry(const Shape& x, const Shape& y)
      : pixels(static_cast<int>(y[0] * y[1] * y[2])),
        height(static_cast<int>(y[1])),
        width(static_cast<int>(y[2])),
        inputs(static_cast<int>(x[3])),
        outputs(static_cast<int>(y[3])),
        by_width(width),
        by_height(height) {}

  /// Pixels before and after those of a block that its taps reach.
  CONVOY_HOST_DEVICE int halo() const { return width + 1; }
};

// Swizzles: the offset of 16 bytes in a matrix whose rows have 2 or 8 such chunks. Any 8 adjacent rows have
// the same chunk in 8 different groups of four banks, so that ldmatrix reads them at once.
__device__ inline int narrow_offset(int row, int chunk) {
  return row * kNarrowRow + (chunk ^ (row >> 2 & 1)) * 16;
}
__device__ inline int wide_offset(int row, int chunk) { return row * kWideRow + (chunk ^ (row & 7)) * 16; }

/// Returns a bit per tap: whether the tap of this pixel is inside its image.
__device__ inline unsigned taps_inside(const Geometry& g, int pixel) {
  const int row = g.by_width.quotient(pixel);
  const int x = pixel - row * g.width;
  const int y = row - g.by_height.quotient(row) * g.height;
  const unsigned columns = (x > 0 ? 1u : 0u) | 2u | (x < g.width - 1 ? 4u : 0u);
  return (y > 0 ? columns : 0u) | columns << 3 | (y < g.height - 1 ? columns << 6 : 0u);
}

}  // namespace convoy::kernels::implicit_gemm

// How the gradient of the filters lays out its work in blocks and its data in shared memory.
#pragma once

#include "convoy/kernels/cuda/implicit_gemm/geometry.h"

namespace convoy::kernels::implicit_gemm {

inline constexpr int kFilterWarps = 4;  // of a team; each has kPack input channels
inline constexpr int kFilterTeams = 2;  // each has half of the pixels of a step
inline constexpr int kTeamPixels = 32;  // of a step: one per lane, and the k of two mma.sync
inline constexpr int kFilterThreads = 32 * kFilterWarps * kFilterTeams;
inline constexpr int kStepPixels = kFilterTeams * kTeamPixels;
inline constexpr int kFilterInputs = kFilterWarps * kPack;  // input channels of a block
inline constexpr int kFilterOutputs = 64;                   // output channels of a block
inline constexpr int kOutputTiles = kFilterOutputs / 16;    // of mma.sync
inline constexpr int kFilterTaps = kTaps * kTaps;

// Bytes of shared memory.
inline constexpr int kInputRow = kFilterInputs * 2;        // kFilterInputs channels of a pixel of x
inline constexpr int kStepBytes = kStepPixels * kWideRow;  // kFilterOutputs channels of the pixels of dy
inline constexpr int kFilterTileBytes = kFilterOutputs * kFilterTaps * kInputRow;  // the result in T

/// The sizes of a launch. Pixels are summed in steps of kStepPixels. A block has the steps of one range, and
/// goes through them in order. The pixels of x for these steps and their halo pass through a ring of rows in
/// shared memory, so that each is copied once. Row r of the range, counted from its halo, is at place
/// r % ring_rows.
struct FilterGeometry {
  Geometry image;
  int ranges, steps;      // of all pixels
  int stages, ring_rows;  // stages: steps in shared memory; one in use, the others on their way
  int input_tiles;
  cuda::Divisor by_ring;

  FilterGeometry(const Shape& x, const Shape& dy, int range_count)
      : image(x, dy),
        ranges(range_count),
        steps(static_cast<int>(blocks_for(image.pixels, kStepPixels))),
        stages(shared_bytes(3, ring_rows_of(3)) <= kMaxSharedBytes ? 3 : 2),
        ring_rows(ring_rows_of(stages)),
        input_tiles(static_cast<int>(blocks_for(image.inputs, kFilterInputs))),
        by_ring(ring_rows) {}

  CONVOY_HOST_DEVICE int first_step(int range) const {
    return static_cast<int>(std::int64_t{steps} * range / ranges);
  }
  /// Returns the place of the first row that a step of a range reads.
  CONVOY_HOST_DEVICE int ring_start(int step) const {
    const int row = step * kStepPixels;
    return row - by_ring.quotient(row) * ring_rows;
  }
  /// Returns the place of row `place`, which is below 2 ring_rows.
  CONVOY_HOST_DEVICE int wrapped(int place) const { return place < ring_rows ? place : place - ring_rows; }
  unsigned blocks() const {
    return static_cast<unsigned>(image.outputs / kFilterOutputs * input_tiles * ranges);
  }
  std::size_t shared_bytes() const {
    const int bytes = shared_bytes(stages, ring_rows);
    return static_cast<std::size_t>(bytes > kFilterTileBytes ? bytes : kFilterTileBytes);
  }

 private:
  /// A multiple of 8, so that 8 adjacent rows have the bank groups of 8 rows in a line where they wrap.
  int ring_rows_of(int stage_count) const {
    return (stage_count * kStepPixels + 2 * image.halo() + 7) / 8 * 8;
  }
  static int shared_bytes(int stage_count, int rows) {
    return stage_count * kStepBytes + (kZeroRows + rows) * kInputRow;
  }
};

/// Swizzle: the offset of 16 bytes in a matrix whose rows have 4 such chunks. Any 8 adjacent rows have the
/// same chunk in 8 different groups of four banks.
__device__ inline int input_offset(int row, int chunk) {
  return row * kInputRow + (chunk ^ (row >> 1 & 3)) * 16;
}

}  // namespace convoy::kernels::implicit_gemm

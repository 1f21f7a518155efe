// The tiles of conv2d_3x3.cu, the shared memory of a block, and the work of all blocks.
#pragma once

#include <algorithm>

#include "convoy/kernels/base/view.h"
#include "tests/cuda_emulator/convolution/slab.h"

namespace convoy::kernels::hopper {

inline constexpr int kConsumers = 2;
inline constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
inline constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
// Filters of a step: for each tap and each pack a plane [64 rows][16 bytes].
inline constexpr unsigned kFilterPlane = plane_bytes(kChannels), kTapBytes = kPacks * kFilterPlane;
// Named barriers; consumer c has the c-th one of each.
inline constexpr unsigned kTurn = 1, kTile = 3;

/// The sizes of a tile for images of kWidth columns, and the shared memory of a block. kResident: there is one
/// step, whose filters stay in shared memory.
template <int kWidth, bool kResident>
struct Tiling {
  static constexpr int kRows = kWidth == 32 ? 4 : 8;             // of an image
  static constexpr int kPitch = kWidth + 1;                      // pixels from row to row
  static constexpr int kColumns = (kRows * kPitch + 7) / 8 * 8;  // of the multiplication
  using Pixels = Slab<kWidth, kPitch, kColumns + 2 * kPitch + 2>;
  static constexpr unsigned kPlane = Pixels::kPlane, kSlabBytes = Pixels::kBytes;
  static constexpr int kFilterStages = kResident ? 1 : 2;
  static constexpr unsigned kFilterBytes = kTaps * kTapBytes;
  static constexpr int kSlabs =
      std::min(6, static_cast<int>((kMaxSharedBytes - 256 - kFilterStages * kFilterBytes) / kSlabBytes));
  /// A finished tile [pixel][64 channels] replaces the slab. 8 threads of a column of d access different banks.
  static constexpr unsigned kPixelBytes = 2 * kChannels + 16;
  static_assert(kSlabs >= kConsumers && kColumns * kPixelBytes <= kSlabBytes);

  struct Shared {
    unsigned char filters[kFilterStages][kFilterBytes];
    unsigned char slabs[kSlabs][kSlabBytes];
    cuda::Mbarrier filters_full[kFilterStages], filters_free[kFilterStages], full[kSlabs], free[kSlabs];
  };
  static_assert(sizeof(Shared) <= kMaxSharedBytes);
};

/// The sizes of a convolution, and its work: items of two tiles of one group of 64 output channels. Block b
/// computes the items b, b + gridDim.x, ….
struct Work {
  Tiles tiles;
  int inputs, outputs, pairs;

  Work(const Shape& x, const Shape& y, int tile_rows)
      : tiles(x, tile_rows),
        inputs(static_cast<int>(x[3])),
        outputs(static_cast<int>(y[3])),
        pairs((tiles.count + 1) / 2) {}
  __host__ __device__ int items() const { return outputs / kChannels * pairs; }
  __host__ __device__ int steps() const { return inputs / kChannels; }
};

}  // namespace convoy::kernels::hopper

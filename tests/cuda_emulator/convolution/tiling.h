// The tiles of conv2d_3x3.cu, the shared memory of a block, and the work of all blocks.
#pragma once

#include <algorithm>

#include "convoy/kernels/base/view.h"
#include "tests/cuda_emulator/convolution/finished_tile.h"
#include "tests/cuda_emulator/convolution/slab.h"

namespace convoy::kernels::hopper {

inline constexpr int kConsumers = 2;
inline constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
inline constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
// Filters of a step: for each tap and each pack a plane [64 rows][16 bytes].
inline constexpr unsigned kFilterPlane = plane_bytes(kChannels), kTapBytes = kPacks * kFilterPlane;
// Named barriers; consumer c has the c-th one of each.
inline constexpr unsigned kTurn = 1, kTile = 3;

/// The sizes of a tile for images of kWidth columns, or with 0 of up to kMaxWidth, and the shared memory of a block.
/// kResident: there is one step, whose filters stay in shared memory.
template <int kWidth, bool kResident>
struct Tiling {
  static constexpr int kMaxPitch = Images<kWidth>::kMaxPitch;
  static constexpr int kRows = kWidth == 32 ? 4 : 8;  // without kWidth, as many as there are columns for
  static constexpr int kColumns =                     // of the multiplication
      kWidth == 0 ? 136 : (kRows * kMaxPitch + 7) / 8 * 8;
  using Pixels = Slab<kColumns + 2 * kMaxPitch + 2>;
  static constexpr unsigned kPlane = Pixels::kPlane, kSlabBytes = Pixels::kBytes;
  static constexpr int kFilterStages = kResident ? 1 : 2;
  static constexpr unsigned kFilterBytes = kTaps * kTapBytes;
  static constexpr int kSlabs =
      std::min(6, static_cast<int>((kMaxSharedBytes - 256 - kFilterStages * kFilterBytes) / kSlabBytes));
  static_assert(kSlabs >= kConsumers && kColumns * kPixelBytes <= kSlabBytes);

  struct Shared {
    unsigned char filters[kFilterStages][kFilterBytes];
    unsigned char slabs[kSlabs][kSlabBytes];
    cuda::Mbarrier filters_full[kFilterStages], filters_free[kFilterStages], full[kSlabs], free[kSlabs];
  };
  static_assert(sizeof(Shared) <= kMaxSharedBytes);

  /// Returns the pixels of a slab, for images with this pitch.
  static constexpr int pixels(int pitch) { return kColumns + 2 * pitch + 2; }
};

/// The sizes of a convolution, and its work: items of two tiles of one group of 64 output channels. Block b
/// computes the items b, b + gridDim.x, ….
template <int kWidth>
struct Work {
  static constexpr bool kHasWidth = kWidth != 0;
  Images<kWidth> images;  // of x; those of y have as many rows and columns
  Tiles tiles;
  int inputs, outputs, pairs;

  /// `pools`: tiles begin at the first row of a cell.
  Work(const Shape& x, const Shape& y, bool pools)
      : images(x),
        tiles(images, rows_of_tile(static_cast<int>(x[2]), pools), kHasWidth || pools),
        inputs(static_cast<int>(x[3])),
        outputs(static_cast<int>(y[3])),
        pairs((tiles.count() + 1) / 2) {}
  __host__ __device__ int items() const { return groups_of(outputs) * pairs; }
  __host__ __device__ int steps() const { return groups_of(inputs); }

 private:
  static int rows_of_tile(int width, bool pools) {
    const int rows = kHasWidth ? Tiling<kWidth, true>::kRows : Tiling<0, true>::kColumns / (width + 1);
    return pools ? rows / 2 * 2 : rows;
  }
};

}  // namespace convoy::kernels::hopper

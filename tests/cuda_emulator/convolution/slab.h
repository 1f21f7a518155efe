// Slabs: pixels in shared memory as the tensor cores read them, and the copies that fill them.
#pragma once

#include <cstdint>

#include "convoy/kernels/base/view.h"
#include "tests/cuda_emulator/tests/hopper.h"

namespace convoy::kernels::hopper {

inline constexpr int kTaps = 9;
inline constexpr int kChannels = 64;              // of a slab
inline constexpr int kPack = 8;                   // channels in 16 bytes
inline constexpr int kPacks = kChannels / kPack;  // planes of a slab
inline constexpr int kDepth = 16;                 // of a multiplication
inline constexpr int kWarpgroup = 128, kWarps = 4;
inline constexpr unsigned kRowBytes = 16, kBlockBytes = 8 * kRowBytes;
inline constexpr unsigned kMaxSharedBytes = 227 << 10;

/// Returns the smallest size of a plane for `rows` rows of 16 bytes. Planes begin 16 bytes after a multiple of 128, so
/// that 8 threads that copy a row of all planes access different banks.
constexpr unsigned plane_bytes(int rows) { return (static_cast<unsigned>(rows + 6) / 8 * 8 + 1) * kRowBytes; }

/// A slab [8 planes][pixel][16 bytes] of images of kColumns columns. From row to row there are kPitch pixels.
template <int kColumns_, int kPitch_, int kPixels_>
struct Slab {
  static constexpr int kColumns = kColumns_, kPitch = kPitch_, kPixels = kPixels_;
  static constexpr unsigned kPlane = plane_bytes(kPixels), kBytes = kPacks * kPlane;
};

/// A range of rows of an image.
struct Rows {
  int image, first, count;
  /// Returns these rows, one above and one below; none for none.
  __device__ Rows with_border() const { return {image, first - 1, count == 0 ? 0 : count + 2}; }
};

/// How images [N, H, W, C] are cut into tiles of whole rows.
struct Tiles {
  int height, rows;  // of an image, and of a tile
  int of_image, count;

  Tiles(const Shape& images, int tile_rows)
      : height(static_cast<int>(images[1])),
        rows(tile_rows),
        of_image((height + tile_rows - 1) / tile_rows),
        count(static_cast<int>(images[0]) * of_image) {}
  /// Returns the rows of a tile: none from the last one on.
  __device__ Rows operator[](int tile) const {
    const int first = tile % of_image * rows, below = height - first;
    return {tile / of_image, first, tile >= count ? 0 : below < rows ? below : rows};
  }
};

/// Starts to copy 64 channels from `channel` on to a slab, by the threads of a warpgroup: pixel p is column
/// p % kPitch + left of row p / kPitch of `rows`. What is outside of these rows or of the image is zero.
template <class Slab, class T>
__device__ void copy_pixels(const T* x, int height, int channels, Rows rows, int left, int channel,
                            unsigned char* to) {
#pragma unroll 1  // few registers
  for (int i = static_cast<int>(threadIdx.x); i < Slab::kPixels * kPacks; i += kWarpgroup) {
    const int pack = i % kPacks, pixel = i / kPacks;
    const int below = pixel / Slab::kPitch, row = rows.first + below, column = pixel % Slab::kPitch + left;
    const bool is_inside =
        below < rows.count && row >= 0 && row < height && column >= 0 && column < Slab::kColumns;
    const std::int64_t from = (std::int64_t{rows.image} * height + row) * Slab::kColumns + column;
    cuda::copy_async(to + pack * Slab::kPlane + pixel * kRowBytes,
                     x + (is_inside ? from * channels + channel + pack * kPack : 0), is_inside);
  }
}

/// A place in a ring of kCount stages, and the parity of the phases of its barriers.
template <int kCount>
struct Stage {
  int index = 0;
  unsigned parity = 0;
  __device__ void advance() {
    if (++index < kCount) return;
    index = 0;
    parity ^= 1;
  }
};

}  // namespace convoy::kernels::hopper

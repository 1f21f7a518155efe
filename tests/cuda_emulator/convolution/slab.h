// Slabs: pixels in shared memory as the tensor cores read them, and the copies that fill them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/cuda/primitives/divisor.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "tests/cuda_emulator/tests/hopper.h"

namespace convoy::kernels::hopper {

inline constexpr int kTaps = 9;
inline constexpr int kChannels = 64;              // of a slab
inline constexpr int kPack = 8;                   // channels in 16 bytes
inline constexpr int kPacks = kChannels / kPack;  // planes of a slab
inline constexpr int kDepth = 16;                 // of a multiplication
inline constexpr int kWarpgroup = 128, kWarps = 4;
inline constexpr int kMaxWidth = 63;  // of images
inline constexpr unsigned kRowBytes = 16, kBlockBytes = 8 * kRowBytes;
inline constexpr unsigned kMaxSharedBytes = 227 << 10;

/// Returns how many groups of 64 channels there are. The last one may have fewer.
constexpr int groups_of(int channels) { return (channels + kChannels - 1) / kChannels; }

/// Returns the smallest size of a plane for `rows` rows of 16 bytes. Planes begin 16 bytes after a multiple of 128, so
/// that 8 threads that copy a row of all planes access different banks.
constexpr unsigned plane_bytes(int rows) { return (static_cast<unsigned>(rows + 6) / 8 * 8 + 1) * kRowBytes; }

/// A slab [8 planes][pixel][16 bytes].
template <int kPixels>
struct Slab {
  static constexpr unsigned kPlane = plane_bytes(kPixels), kBytes = kPacks * kPlane;
};

/// A range of the rows of Images.
struct Rows {
  int first, count;
  /// Returns these rows, one above and one below; none for none.
  __device__ Rows with_border() const { return {first - 1, count == 0 ? 0 : count + 2}; }
};

/// The rows of images [N, H, W, C] of less than 2^31 elements, one after another. Behind those of each image is one of zeros, the lower border of
/// this image and the upper one of the next. kWidth: W, or 0 if it is known at run time alone.
template <int kWidth>
class Images {
 public:
  /// From row to row of a slab there is a pixel more than an image has columns.
  static constexpr int kMaxPitch = (kWidth == 0 ? kMaxWidth : kWidth) + 1;

  explicit Images(const Shape& shape)
      : channels_(static_cast<int>(shape[3])),
        width_(static_cast<int>(shape[2])),
        height_(static_cast<int>(shape[1])),
        rows_(static_cast<int>(shape[0]) * (height_ + 1)),
        pitch_(width_ + 1),
        rows_of_image_(height_ + 1) {}

  int rows() const { return rows_; }
  int height() const { return height_; }
  __device__ int channels() const { return channels_; }
  __device__ int width() const { return kWidth == 0 ? width_ : kWidth; }
  __device__ int pitch() const { return width() + 1; }
  /// Returns the row of pixel p of a slab.
  __device__ int row_of(int pixel) const {
    return kWidth == 0 ? pitch_.quotient(pixel) : pixel / (kWidth + 1);
  }
  /// Returns where the pixels of a row begin in memory; -1 for a row of zeros and for those before the first and behind
  /// the last one.
  __device__ int begin_of(int row) const {
    if (row < 0 || row >= rows_) return -1;
    const int image = rows_of_image_.quotient(row);
    return row - image * (height_ + 1) == height_ ? -1 : (row - image) * width();
  }
  __device__ int row_of_image(int row) const { return row - rows_of_image_.quotient(row) * (height_ + 1); }
  /// Returns the place of a pixel after pooling in cells of 2 x 2 pixels; -1 for pixels outside of all cells.
  __device__ int cell_of(int row, int column) const {
    if (row < 0 || row >= rows_ || column < 0) return -1;
    const int image = rows_of_image_.quotient(row), cell_row = row_of_image(row) / 2;
    if (cell_row >= height_ / 2 || column / 2 >= width() / 2) return -1;
    return (image * (height_ / 2) + cell_row) * (width() / 2) + column / 2;
  }

 private:
  int channels_, width_, height_, rows_;
  cuda::Divisor pitch_, rows_of_image_;
};

/// Tiles of `rows` rows. With `of_one_image`, all rows of a tile are of one image, whose last tile may have fewer.
class Tiles {
 public:
  template <int kWidth>
  Tiles(const Images<kWidth>& images, int rows, bool of_one_image)
      : rows_(rows),
        rows_of_image_(of_one_image ? images.height() : images.rows()),
        of_image_((rows_of_image_ + rows - 1) / rows),
        count_(of_one_image ? images.rows() / (images.height() + 1) * of_image_ : of_image_) {}

  __host__ __device__ int count() const { return count_; }
  /// Returns the rows of a tile: none from the last one on.
  __device__ Rows operator[](int tile) const {
    if (tile >= count_) return {0, 0};
    const int first = tile % of_image_ * rows_, below = rows_of_image_ - first;
    return {tile / of_image_ * (rows_of_image_ + 1) + first, below < rows_ ? below : rows_};
  }

 private:
  int rows_, rows_of_image_, of_image_, count_;  // an image is all images without of_one_image
};

/// Starts to copy 64 channels of `pixels` pixels to a slab, by the threads of a warpgroup: pixel p is column
/// p - row * pitch + left of row `row` of `rows`, whose place in x is place(begin of the row, column). What is outside of
/// these rows or of the images is zero.
template <class Slab, class Images, class T, class Place>
__device__ void copy_pixels(const Images& images, const T* x, Rows rows, int left, int pixels, int channel,
                            unsigned char* to, const Place& place) {
#pragma unroll 1  // few registers
  for (int i = static_cast<int>(threadIdx.x); i < pixels * kPacks; i += kWarpgroup) {
    const int pixel = i / kPacks, plane = i % kPacks, first = channel + plane * kPack;
    const int row = images.row_of(pixel), column = pixel - row * images.pitch() + left;
    const int begin = row < rows.count ? images.begin_of(rows.first + row) : -1;
    const bool is_inside = begin >= 0 && column >= 0 && column < images.width() && first < images.channels();
    cuda::copy_async(to + plane * Slab::kPlane + pixel * kRowBytes,
                     x + (is_inside ? place(begin, column) * images.channels() + first : 0), is_inside);
  }
}
template <class Slab, class Images, class T>
__device__ void copy_pixels(const Images& images, const T* x, Rows rows, int left, int pixels, int channel,
                            unsigned char* to) {
  copy_pixels<Slab>(images, x, rows, left, pixels, channel, to,
                    [](int begin, int column) { return begin + column; });
}

/// Does the same with the gradient of pooling: a cell of `cells` belongs to the pixel, 2 row + column of the cell, that
/// `indices` has. Other pixels are zero. Stores to shared memory itself.
template <class Slab, class Images, class T>
__device__ void unpool_pixels(const Images& images, const T* cells, const std::uint8_t* indices, Rows rows,
                              int left, int pixels, int channel, unsigned char* to) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < pixels * kPacks; i += kWarpgroup) {
    const int pixel = i / kPacks, plane = i % kPacks, first = channel + plane * kPack;
    const int below = images.row_of(pixel), column = pixel - below * images.pitch() + left;
    const int row = rows.first + below;
    const int cell = below < rows.count && first < images.channels() ? images.cell_of(row, column) : -1;
    cuda::Pack<T, kPack> pack{};
    if (cell >= 0) {
      const auto index = cuda::load_pack<kPack>(indices + cell * images.channels() + first);
      const auto value = cuda::load_pack<kPack>(cells + cell * images.channels() + first);
      const int own = images.row_of_image(row) % 2 * 2 + column % 2;
#pragma unroll
      for (int j = 0; j < kPack; ++j)
        if (index.values[j] == own) pack.values[j] = value.values[j];
    }
    cuda::store_pack(reinterpret_cast<T*>(to + plane * Slab::kPlane + pixel * kRowBytes), pack);
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

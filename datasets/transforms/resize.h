// Resizing of u8 images, which happens once when a data set is read.
#pragma once

#include <cstdint>
#include <vector>

#include "convoy/datasets/dataset.h"

namespace convoy::data {

/// A borrowed image u8 [height, width, channels] with dense rows.
struct PixelView {
  const std::uint8_t* pixels = nullptr;  // of the first row and column
  std::int64_t height = 0, width = 0, channels = 0;
};

/// Scales the short side to `size` and crops the center square of the long side, in one step. Writes
/// [size, size, channels] to `out`.
///
/// Output pixel i is centered at (i + 1/2 - size/2) s + side/2 of its axis, with s = short side / size. Its
/// value is the mean of the input weighted with a triangle of half-width max(s, 1) around this point. Weights
/// outside the image are dropped and the others are normalized to a sum of 1. Enlarging is thus bilinear
/// interpolation; shrinking is an area-weighted mean without aliasing.
void resize_to_square(const PixelView& image, std::int64_t size, std::uint8_t* out);

/// The filter weights along one axis: out[i] = sum over k of weights[i * maximum + k] in[first[i] + k], k <
/// count[i].
struct ResizeTaps {
  std::vector<std::int64_t> first, count;
  std::vector<float> weights;
  std::int64_t maximum = 0;  // weights per output pixel; the row stride of `weights`

  ResizeTaps() = default;
  ResizeTaps(std::int64_t side, std::int64_t size, double scale);
};

/// Applies resize_to_square() to many images, one after another. Reuses its buffers, and the filter weights
/// while the image size stays the same. Not thread-safe: every thread needs its own object.
class SquareResizer {
 public:
  explicit SquareResizer(std::int64_t size) : size_(size) {}
  void run(const PixelView& image, std::uint8_t* out);
  /// Writes a decoded image to [height, width, 3]: as it is if it has that size, else as a square, for which height must be
  /// the size of the constructor.
  void run(const OriginalImage& image, std::int64_t height, std::int64_t width, std::uint8_t* out);
  /// Resizes the whole image to [height, width, channels], each axis by its own scale, with the same filter.
  void stretch(const PixelView& image, std::int64_t height, std::int64_t width, std::uint8_t* out);

 private:
  void apply(const PixelView& image, std::uint8_t* out);
  void prepare(std::int64_t height, std::int64_t width);

  std::int64_t size_;
  std::int64_t height_ = 0, width_ = 0;  // of the images that the filter weights are for
  ResizeTaps columns_, rows_;
  std::vector<float> row_;     // [width, channels]
  std::vector<float> narrow_;  // [input rows that contribute, size, channels]
};

/// Throws UsageError unless `size` is 0 (keep the original size) to 4096 pixels.
void check_image_side(int size);

/// Returns the set with every image resized to size x size, using `workers` threads. Returns `set` unchanged
/// if `size` is 0 or its images already have this size.
ImageSet resized(const ImageSet& set, int size, int workers);

}  // namespace convoy::data

// Resizing of u8 images, once, when a set is loaded.
#pragma once

#include <cstdint>
#include <vector>

#include "datasets/dataset.h"

namespace convoy {

/// u8 [height, width, channels], dense rows.
struct PixelView {
  const std::uint8_t* pixels = nullptr;
  std::int64_t height = 0, width = 0, channels = 0;
};

/// Scales the short side to `size` and cuts the central square out of the long one, in one pass: output pixel
/// i lies at (i + 1/2 - size/2) s + side/2 of its axis, with s = short side / size, and averages what a
/// triangle of half-width max(s, 1) around it covers (weights that fall off the image are left out and the
/// rest made to sum to 1). Growing, that is bilinear interpolation; shrinking, an area-weighted mean without
/// aliasing. `out`: [size, size, channels].
void resize_to_square(const PixelView& image, std::int64_t size, std::uint8_t* out);

/// The filter along one axis: out[i] = sum over k of weights[i * most + k] in[first[i] + k], k < count[i].
struct ResizeTaps {
  std::vector<std::int64_t> first, count;
  std::vector<float> weights;
  std::int64_t most = 0;

  ResizeTaps() = default;
  ResizeTaps(std::int64_t side, std::int64_t size, double scale);
};

/// resize_to_square for many images, one after another: keeps its memory, and the filter for images of the
/// size that the last one had.
class SquareResizer {
 public:
  explicit SquareResizer(std::int64_t size) : size_(size) {}
  void run(const PixelView& image, std::uint8_t* out);

 private:
  void prepare(std::int64_t height, std::int64_t width);

  std::int64_t size_;
  std::int64_t height_ = 0, width_ = 0;  // of the images that the filter is for
  ResizeTaps columns_, rows_;
  std::vector<float> row_;     // [width, channels]
  std::vector<float> narrow_;  // [rows that are looked at, size, channels]
  std::vector<float> sums_;    // [size, channels]
};

/// UsageError unless 0 (as it is) to 4096 pixels.
void check_image_side(int size);

/// Every image of the set; size 0, or images that have it already: the set itself.
ImageSet resized(const ImageSet& set, int size, int workers);

}  // namespace convoy

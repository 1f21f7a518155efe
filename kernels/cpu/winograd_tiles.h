// The tiles that Winograd's convolution cuts images into.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/winograd_transforms.h"

namespace convoy::winograd {

/// NHWC images; the pixels of one that lie in a square window, which may overhang.
struct Images {
  std::int64_t n, h, w, channels;
};

/// Squares of outputs, counted through all images by rows. The last ones of an axis may overhang.
struct Tiling {
  std::int64_t rows, columns, count;

  /// `side`: of a tile, in outputs.
  Tiling(const Images& outputs, int side)
      : rows((outputs.h + side - 1) / side),
        columns((outputs.w + side - 1) / side),
        count(outputs.n * rows * columns) {}
};

/// Where the pixels of a tile's window lie; those outside of the image are `outside`.
template <int Size, class Element>
struct Window {
  Element* pixels[Size][Size];

  /// `step`: from one window to the next one. `shift`: of the first window's corner from the image's, so
  /// -padding for inputs.
  Window(Element* data, const Images& images, const Tiling& tiling, std::int64_t tile, std::int64_t step,
         std::int64_t shift, Element* outside) {
    const std::int64_t in_image = tile % (tiling.rows * tiling.columns);
    const std::int64_t top = in_image / tiling.columns * step + shift;
    const std::int64_t left = in_image % tiling.columns * step + shift;
    Element* const image =
        data + tile / (tiling.rows * tiling.columns) * images.h * images.w * images.channels;
    for (std::int64_t y = 0; y < Size; ++y)
      for (std::int64_t x = 0; x < Size; ++x) {
        const bool inside = top + y >= 0 && top + y < images.h && left + x >= 0 && left + x < images.w;
        pixels[y][x] = inside ? image + ((top + y) * images.w + left + x) * images.channels : outside;
      }
  }
};

/// What a window's pixels become at the points: transforms of all channels, a vector at a time.
/// put(point, channel, value).
template <class Transform, int Size, class Element, class Put>
void transform_window(const Window<Size, const Element>& window, std::int64_t channels, Put&& put) {
  for (std::int64_t channel = 0; channel < channels; channel += simd::kLanes)
    transform<Transform>(
        [&](int y, int x, Vec& value) { simd::load(window.pixels[y][x] + channel, value); },
        [&](int y, int x, const Vec& value) { put(y * Transform::kTo + x, channel, value); });
}

}  // namespace convoy::winograd

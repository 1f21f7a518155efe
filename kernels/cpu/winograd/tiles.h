// The tiles into which Winograd's convolution divides images.
#pragma once

#include <algorithm>
#include <cstdint>

#include "convoy/kernels/cpu/winograd/transforms.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels::winograd {

/// Square tiles of outputs, numbered row by row through all images. The last tile of an axis may overhang the
/// image.
struct Tiling {
  std::int64_t rows, columns, count;

  /// `side` is the side of a tile in outputs.
  Tiling(const Images& outputs, int side)
      : rows((outputs.h + side - 1) / side),
        columns((outputs.w + side - 1) / side),
        count(outputs.n * rows * columns) {}
};

/// Pointers to the pixels of a tile's window. Pixels outside the image point to `outside`.
template <int Size, class Element>
struct Window {
  Element* pixels[Size][Size];

  /// `step` is the stride of the windows in pixels. `shift` is the offset of the first window's
  /// corner from the image's corner: -padding for inputs.
  Window(Element* data, const Images& images, const Tiling& tiling, std::int64_t tile, std::int64_t step,
         std::int64_t shift, Element* outside) {
    const std::int64_t in_image = tile % (tiling.rows * tiling.columns);
    const std::int64_t top = in_image / tiling.columns * step + shift;
    const std::int64_t left = in_image % tiling.columns * step + shift;
    Element* const image = data + tile / (tiling.rows * tiling.columns) * images.image();
    for (std::int64_t y = 0; y < Size; ++y)
      for (std::int64_t x = 0; x < Size; ++x) {
        const bool inside = top + y >= 0 && top + y < images.h && left + x >= 0 && left + x < images.w;
        pixels[y][x] = inside ? image + ((top + y) * images.w + left + x) * images.channels : outside;
      }
  }
};

/// Transforms all channels of a window, one vector at a time. Calls put(point, channel, value) with each
/// result.
template <class Transform, int Size, class Element, class Put>
void transform_window(const Window<Size, const Element>& window, std::int64_t channels, Put&& put) {
  for (std::int64_t channel = 0; channel < channels; channel += simd::kLanes)
    transform<Transform>(
        [&](int y, int x, Vec& value) { simd::load(window.pixels[y][x] + channel, value); },
        [&](int y, int x, const Vec& value) { put(y * Transform::kTo + x, channel, value); });
}

}  // namespace convoy::kernels::winograd

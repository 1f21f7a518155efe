// Resizing of u8 images, once, when a set is loaded.
#pragma once

#include <cstdint>

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

/// UsageError unless 0 (as it is) to 4096 pixels.
void check_image_side(int size);

/// Every image of the set; size 0, or images that have it already: the set itself.
ImageSet resized(const ImageSet& set, int size, int workers);

}  // namespace convoy

// RandAugment (Cubuk et al., arXiv:1909.13719) with the operations and magnitudes of torchvision, on images
// of bytes on the CPU. All functions are thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "convoy/kernels/base/random.h"

namespace convoy::data {

/// The settings of RandAugment.
struct RandAugmentOptions {
  int operations = 0;  // per image, drawn at random with repetition; 0: no RandAugment
  int magnitude = 9;   // of all operations, from 0 to 30

  /// Returns whether images are changed.
  bool enabled() const { return operations > 0; }
};

/// Parses "none", or N,M: the number of operations, from 1 to 16, and the magnitude, such as "2,9". Throws
/// UsageError for another text.
RandAugmentOptions parse_rand_augment(std::string_view text);

/// The operations, in the order of torchvision.
enum class ImageOperation {
  identity,       // no change
  shear_x,        // row y moves by up to 0.3 (y + 1/2) pixels
  shear_y,        // column x likewise
  translate_x,    // by up to 150/331 of the width, in whole pixels
  translate_y,    // by up to 150/331 of the height
  rotate,         // by up to 30 degrees
  brightness,     // the factor of the pixels is 0.1 to 1.9
  color,          // the factor of the distances from the gray image is 0.1 to 1.9; no change with one channel
  contrast,       // of the distances from the mean of the gray image
  sharpness,      // of the distances from a smoothed image; no change with at most 2 pixels per side
  posterize,      // only the upper 8 to 4 bits remain
  solarize,       // pixels from a threshold of 255 to 0 on are inverted
  auto_contrast,  // the darkest pixel of a channel becomes 0, and the brightest 255
  equalize,       // the pixels of a channel become uniformly distributed
};
/// The names of the operations in torchvision.
inline constexpr std::array kImageOperations{
    "Identity", "ShearX",   "ShearY",    "TranslateX", "TranslateY", "Rotate",       "Brightness",
    "Color",    "Contrast", "Sharpness", "Posterize",  "Solarize",   "AutoContrast", "Equalize"};

/// An image of bytes, [height, width, channels].
struct ByteImage {
  std::span<std::uint8_t> pixels;  // height * width * channels
  int height = 0;                  // rows of pixels
  int width = 0;                   // columns of pixels
  int channels = 0;                // 1 or 3
};

/// Applies one operation in place. `negative` reverses the direction of the operations from shear_x to
/// sharpness; others have none. The geometric ones take the nearest pixel, and black outside the image.
void apply_operation(ImageOperation operation, int magnitude, bool negative, const ByteImage& image);

/// Applies RandAugment in place. Operation k is drawn by random.words(id, 32 + k): [0] is the operation, by
/// to_below, and the top bit of [1] its direction.
void rand_augment(const RandAugmentOptions& options, const Random& random, std::uint64_t id,
                  const ByteImage& image);

}  // namespace convoy::data

// What augment draws for a sample, and what becomes of a pixel: the same code on the CPU and in kernels.
#pragma once

#include <cstdint>

#include "kernels/augment.h"

namespace convoy {

/// What is drawn for one sample, in pixels.
struct AugmentChoices {
  int down, right;  // how far the image moves
  bool flip;
  int hole_top, hole_left;  // the cutout's first row and column, which may lie outside
};

CONVOY_HOST_DEVICE constexpr AugmentChoices choose_augmentation(const AugmentOptions& options,
                                                                const Random& random, std::uint64_t id,
                                                                int height, int width) {
  const auto words = random.words(id);
  const auto shifts = 2 * static_cast<std::uint32_t>(options.crop_padding) + 1;
  AugmentChoices choices{.down = static_cast<int>(to_below(words[0], shifts)) - options.crop_padding,
                         .right = static_cast<int>(to_below(words[1], shifts)) - options.crop_padding,
                         .flip = options.flip && (words[2] >> 31) != 0,
                         .hole_top = 0,
                         .hole_left = 0};
  if (options.cutout > 0) {
    const auto centre = random.words(id, 1);
    choices.hole_top =
        static_cast<int>(to_below(centre[0], static_cast<std::uint32_t>(height))) - options.cutout / 2;
    choices.hole_left =
        static_cast<int>(to_below(centre[1], static_cast<std::uint32_t>(width))) - options.cutout / 2;
  }
  return choices;
}

inline constexpr int kBlack = -1;

/// The index in [0, size) that provides pixel i, which may lie outside by less than size; or kBlack.
CONVOY_HOST_DEVICE constexpr int source_index(int i, int size, bool reflect) {
  if (0 <= i && i < size) return i;
  if (!reflect) return kBlack;
  return i < 0 ? -i : 2 * (size - 1) - i;
}

/// One quotient, one difference and one product, each rounded: there is no product before a sum that a
/// compiler could fuse with it, so all of them give the same bits.
template <class T>
CONVOY_HOST_DEVICE constexpr T normalize_pixel(std::uint8_t pixel, T mean, T inverse_std) {
  return (static_cast<T>(pixel) / 255 - mean) * inverse_std;
}

}  // namespace convoy

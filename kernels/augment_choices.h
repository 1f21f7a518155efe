// What augment draws for a sample, and what becomes of a pixel: the same code on the CPU and in kernels.
#pragma once

#include <cstdint>

#include "kernels/augment.h"

namespace convoy {

/// A part of an image.
struct ImageBox {
  int top = 0, left = 0, height = 0, width = 0;
};

/// What is drawn for one sample, in pixels.
struct AugmentChoices {
  int down, right;  // how far the image moves
  bool flip;
  int hole_top, hole_left;  // the cutout's first row and column, which may lie outside
  ImageBox box;             // that is stretched to the whole, where least_area is not 0
};

/// The largest number whose square is no more.
CONVOY_HOST_DEVICE constexpr std::int64_t whole_root(std::int64_t square) {
  std::int64_t root = 0;
  for (std::int64_t bit = std::int64_t{1} << 30; bit > 0; bit >>= 1)
    if ((root + bit) * (root + bit) <= square) root += bit;
  return root;
}

/// In whole numbers, so that all devices draw the same box: areas and ratios in parts of 2^16.
CONVOY_HOST_DEVICE constexpr ImageBox choose_box(int least_area, const Random& random, std::uint64_t id,
                                                 int height, int width) {
  constexpr std::uint32_t kOne = 1 << 16;
  const auto words = random.words(id, 2), places = random.words(id, 3);
  const auto least = static_cast<std::uint32_t>(least_area) * kOne / 100;
  const std::int64_t area =
      std::int64_t{height} * width * static_cast<std::int64_t>(least + to_below(words[0], kOne - least + 1));
  const auto ratio = static_cast<std::int64_t>(kOne * 3 / 4 + to_below(words[1], kOne / 4 + 1));
  // With area and ratio as multiples of 2^-16: shorter^2 = area ratio, longer^2 = area / ratio; rounded to
  // half a pixel first.
  const auto shorter = static_cast<int>((whole_root((area * ratio) >> 30) + 1) / 2);
  const auto longer = static_cast<int>((whole_root(4 * area / ratio) + 1) / 2);
  const bool upright = (words[2] >> 31) != 0;
  const auto within = [](int side, int most) { return side < 1 ? 1 : side > most ? most : side; };
  ImageBox box{.height = within(upright ? longer : shorter, height),
               .width = within(upright ? shorter : longer, width)};
  box.top = static_cast<int>(to_below(places[0], static_cast<std::uint32_t>(height - box.height + 1)));
  box.left = static_cast<int>(to_below(places[1], static_cast<std::uint32_t>(width - box.width + 1)));
  return box;
}

/// Two neighbouring pixels of a row or column of the image, and the second one's weight of 256.
struct PixelPair {
  int first, second, weight;
};

/// What provides pixel i of `size`, which box pixels from `begin` on are stretched to.
CONVOY_HOST_DEVICE constexpr PixelPair stretched_from(int i, int size, int begin, int box) {
  // Of the centre, in parts of 256 from the centre of the box's first pixel.
  const int at = static_cast<int>((2 * std::int64_t{i} + 1) * box * 128 / size) - 128;
  const int last = box - 1;
  if (at <= 0) return {begin, begin, 0};
  const int first = at / 256;
  if (first >= last) return {begin + last, begin + last, 0};
  return {begin + first, begin + first + 1, at % 256};
}

/// The mean of four bytes by the weights of their rows and columns, rounded half up.
CONVOY_HOST_DEVICE constexpr std::uint8_t blend(int upper_left, int upper_right, int lower_left,
                                                int lower_right, int down, int right) {
  const int upper = upper_left * (256 - right) + upper_right * right;
  const int lower = lower_left * (256 - right) + lower_right * right;
  return static_cast<std::uint8_t>((upper * (256 - down) + lower * down + (1 << 15)) >> 16);
}

CONVOY_HOST_DEVICE constexpr AugmentChoices choose_augmentation(const AugmentOptions& options,
                                                                const Random& random, std::uint64_t id,
                                                                int height, int width) {
  const auto words = random.words(id);
  const auto shifts = 2 * static_cast<std::uint32_t>(options.crop_padding) + 1;
  AugmentChoices choices{.down = static_cast<int>(to_below(words[0], shifts)) - options.crop_padding,
                         .right = static_cast<int>(to_below(words[1], shifts)) - options.crop_padding,
                         .flip = options.flip && (words[2] >> 31) != 0,
                         .hole_top = 0,
                         .hole_left = 0,
                         .box = {}};
  if (options.least_area > 0) choices.box = choose_box(options.least_area, random, id, height, width);
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

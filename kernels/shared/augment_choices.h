// The random choices and the pixel arithmetic of augment, shared by the CPU and CUDA implementations.
#pragma once

#include <cstdint>

#include "convoy/kernels/augment.h"

namespace convoy::kernels {

/// A rectangle of pixels in an image.
struct ImageBox {
  int top = 0, left = 0, height = 0, width = 0;

  CONVOY_HOST_DEVICE constexpr bool contains(int y, int x) const {
    return top <= y && y < top + height && left <= x && x < left + width;
  }
};

/// The random colors of a sample, in units of 2^-16. Integers, so that all devices compute the same bytes.
struct ColorChoices {
  static constexpr std::int32_t kOne = 1 << 16;
  std::int32_t saturation = kOne;  // the factor of the distance from gray
  std::int32_t turn = 0;           // the part of the color circle by which hues are rotated, from 0 up to 1

  CONVOY_HOST_DEVICE constexpr bool changes() const { return saturation != kOne || turn != 0; }
};

/// The random choices for one sample. Places and sizes are in pixels.
struct AugmentChoices {
  int down, right;  // the shift of the image
  bool flip;
  ImageBox box;   // the box that is resized to the full image; used only if min_area is not 0
  ImageBox hole;  // the cutout, which may be partly outside the image
  ColorChoices colors;
};

/// Returns the integer square root: the largest number whose square is at most `square`.
CONVOY_HOST_DEVICE constexpr std::int64_t whole_root(std::int64_t square) {
  std::int64_t root = 0;
  for (std::int64_t bit = std::int64_t{1} << 30; bit > 0; bit >>= 1)
    if ((root + bit) * (root + bit) <= square) root += bit;
  return root;
}

/// Returns the random box of the sample `id`. Computes in fixed point (areas and ratios in units of 2^-16),
/// so that all devices choose the same box.
CONVOY_HOST_DEVICE constexpr ImageBox choose_box(int min_area, const Random& random, std::uint64_t id,
                                                 int height, int width) {
  constexpr std::uint32_t kOne = 1 << 16;
  const auto words = random.words(id, 2), places = random.words(id, 3);
  const auto min_fraction = static_cast<std::uint32_t>(min_area) * kOne / 100;
  const std::int64_t area =
      std::int64_t{height} * width *
      static_cast<std::int64_t>(min_fraction + to_below(words[0], kOne - min_fraction + 1));
  const auto ratio = static_cast<std::int64_t>(kOne * 3 / 4 + to_below(words[1], kOne / 4 + 1));
  // shorter^2 = area ratio and longer^2 = area / ratio, with area and ratio in units of 2^-16. The roots are
  // taken in half pixels and then rounded to pixels.
  const auto shorter = static_cast<int>((whole_root((area * ratio) >> 30) + 1) / 2);
  const auto longer = static_cast<int>((whole_root(4 * area / ratio) + 1) / 2);
  const bool upright = (words[2] >> 31) != 0;
  const auto within = [](int side, int max_side) { return side < 1 ? 1 : side > max_side ? max_side : side; };
  ImageBox box{.height = within(upright ? longer : shorter, height),
               .width = within(upright ? shorter : longer, width)};
  box.top = static_cast<int>(to_below(places[0], static_cast<std::uint32_t>(height - box.height + 1)));
  box.left = static_cast<int>(to_below(places[1], static_cast<std::uint32_t>(width - box.width + 1)));
  return box;
}

inline constexpr std::uint32_t kErasingAttempts =
    10;  // boxes that are drawn until one is smaller than the image

/// Returns whether random erasing applies to the sample `id`.
CONVOY_HOST_DEVICE constexpr bool is_erased(const AugmentOptions& options, const Random& random,
                                            std::uint64_t id) {
  return options.random_erasing > 0 && to_uniform(random.words(id, 5)[0]) < options.random_erasing;
}

/// Returns the box of an attempt to erase a part of the sample `id`, without pixels unless it is smaller than
/// the image on both axes. Computes in fixed point, as choose_box() does.
CONVOY_HOST_DEVICE constexpr ImageBox choose_erased(std::uint32_t attempt, const Random& random,
                                                    std::uint64_t id, int height, int width) {
  constexpr std::uint32_t kMinArea = 1311, kMaxArea = 21627;      // 0.02 and 0.33 in units of 2^-16
  constexpr std::uint32_t kMinRatio = 19661, kMaxRatio = 216269;  // 0.3 and 3.3 in units of 2^-16
  const auto words = random.words(id, 6 + attempt);
  const std::int64_t area = std::int64_t{height} * width *
                            static_cast<std::int64_t>(kMinArea + to_below(words[0], kMaxArea - kMinArea + 1));
  const std::int64_t ratio = kMinRatio + to_below(words[1], kMaxRatio - kMinRatio + 1);
  // The roots of area ratio and area / ratio, in half pixels, rounded to pixels.
  ImageBox box{.height = static_cast<int>((whole_root((area * ratio) >> 30) + 1) / 2),
               .width = static_cast<int>((whole_root(4 * area / ratio) + 1) / 2)};
  if (box.height < 1 || box.width < 1 || box.height >= height || box.width >= width) return {};
  box.top = static_cast<int>(to_below(words[2], static_cast<std::uint32_t>(height - box.height + 1)));
  box.left = static_cast<int>(to_below(words[3], static_cast<std::uint32_t>(width - box.width + 1)));
  return box;
}

/// Two adjacent pixels in a row or column of the image, and the weight of the second one in units of 1/256.
struct PixelPair {
  int first, second, weight;
};

/// Returns the pixels that are interpolated to pixel i of a row of `size` pixels. The row is the result of
/// resizing `box` pixels that start at `begin`.
CONVOY_HOST_DEVICE constexpr PixelPair stretched_from(int i, int size, int begin, int box) {
  // The centre of pixel i, relative to the centre of the box's first pixel, in units of 1/256 pixel.
  const int at = static_cast<int>((2 * std::int64_t{i} + 1) * box * 128 / size) - 128;
  const int last = box - 1;
  if (at <= 0) return {begin, begin, 0};
  const int first = at / 256;
  if (first >= last) return {begin + last, begin + last, 0};
  return {begin + first, begin + first + 1, at % 256};
}

/// Returns the weighted mean of four bytes, rounded half up. `down` and `right` are the weights of the lower
/// row and the right column, in units of 1/256.
CONVOY_HOST_DEVICE constexpr std::uint8_t blend(int upper_left, int upper_right, int lower_left,
                                                int lower_right, int down, int right) {
  const int upper = upper_left * (256 - right) + upper_right * right;
  const int lower = lower_left * (256 - right) + lower_right * right;
  return static_cast<std::uint8_t>((upper * (256 - down) + lower * down + (1 << 15)) >> 16);
}

/// Returns whether the sample `id` is flipped at random.
CONVOY_HOST_DEVICE constexpr bool choose_flip(const AugmentOptions& options, const Random& random,
                                              std::uint64_t id) {
  if (!options.flip) return false;
  if (!options.alternate_flips) return (random.words(id)[2] >> 31) != 0;
  const Random of_first_epoch{random.seed, random.purpose, 0};
  return ((of_first_epoch.words(id)[2] >> 31) ^ (random.stream & 1)) != 0;
}

/// Returns the colors of the sample `id`.
CONVOY_HOST_DEVICE constexpr ColorChoices choose_colors(const AugmentOptions& options, const Random& random,
                                                        std::uint64_t id) {
  ColorChoices colors;
  if (options.saturation == 0 && options.hue == 0) return colors;
  const auto words = random.words(id, 4);
  // A random number of -1 … 1 in units of 2^-15, times a percentage, in units of 2^-16.
  const auto scaled = [](std::uint32_t word, int percent) {
    return (static_cast<std::int32_t>(word) >> 16) * percent / 50;
  };
  colors.saturation += scaled(words[2], options.saturation);
  colors.turn = scaled(words[3], options.hue) & (ColorChoices::kOne - 1);
  return colors;
}

/// Returns the choices for the sample `id` of an image of height x width pixels. `random` has no cell.
CONVOY_HOST_DEVICE constexpr AugmentChoices choose_augmentation(const AugmentOptions& options,
                                                                const Random& random, std::uint64_t id,
                                                                int height, int width) {
  const auto words = random.words(id);
  const auto shifts = 2 * static_cast<std::uint32_t>(options.crop_padding) + 1;
  const int padding = options.crop_padding;
  AugmentChoices choices{.down = static_cast<int>(to_below(words[0], shifts)) - padding + options.down,
                         .right = static_cast<int>(to_below(words[1], shifts)) - padding + options.right,
                         .flip = choose_flip(options, random, id) != options.mirror,
                         .box = {},
                         .hole = {},
                         .colors = choose_colors(options, random, id)};
  if (options.min_area > 0) choices.box = choose_box(options.min_area, random, id, height, width);
  if (options.cutout > 0) {
    const auto centre = random.words(id, 1);
    const int before = options.cutout / 2;
    choices.hole = {.top = static_cast<int>(to_below(centre[0], static_cast<std::uint32_t>(height))) - before,
                    .left = static_cast<int>(to_below(centre[1], static_cast<std::uint32_t>(width))) - before,
                    .height = options.cutout,
                    .width = options.cutout};
  }
  return choices;
}

/// A pixel of three bytes.
struct Color {
  std::uint8_t red, green, blue;

  /// Returns a byte by its place in the pixel. Compares, since a GPU has no registers with numbers.
  CONVOY_HOST_DEVICE constexpr std::uint8_t channel(int place) const {
    return place == 0 ? red : place == 1 ? green : blue;
  }
};

/// Returns the color whose distance from its gray value (ITU-R BT.601) is multiplied by `factor`, in units of
/// 2^-16.
CONVOY_HOST_DEVICE constexpr Color saturate(const Color& color, std::int32_t factor) {
  const int gray = 19595 * color.red + 38470 * color.green + 7471 * color.blue;  // 0.299, 0.587 and 0.114
  const auto channel = [&](int from) {
    const std::int64_t distance = from * ColorChoices::kOne - gray;
    const auto to = static_cast<int>((gray + (distance * factor >> 16) + ColorChoices::kOne / 2) >> 16);
    return static_cast<std::uint8_t>(to < 0 ? 0 : to > 255 ? 255 : to);
  };
  return {channel(color.red), channel(color.green), channel(color.blue)};
}

/// Returns the color whose hue is rotated by `turn`, a part of the color circle in units of 2^-16. Its
/// largest and its smallest channel keep their values and change places, so that value and saturation (HSV)
/// remain; the third channel depends linearly on the angle within each sixth of the circle.
CONVOY_HOST_DEVICE constexpr Color rotate_hue(const Color& color, std::int32_t turn) {
  const int red = color.red, green = color.green, blue = color.blue;
  const int largest = red > green ? (red > blue ? red : blue) : (green > blue ? green : blue);
  const int smallest = red < green ? (red < blue ? red : blue) : (green < blue ? green : blue);
  const int chroma = largest - smallest;
  if (chroma == 0) return color;
  // Angles are multiplied by the chroma. In sixths of the circle the hue is an integer, then its unit is
  // 2^-16.
  const int sixth = chroma * ColorChoices::kOne;
  const int hue = largest == red     ? green - blue
                  : largest == green ? 2 * chroma + blue - red
                                     : 4 * chroma + red - green;
  const int turned =
      (hue * ColorChoices::kOne + 6 * chroma * turn + 6 * sixth) % (6 * sixth);  // at most 5 255 2^17
  const int rise = (turned % sixth + ColorChoices::kOne / 2) / ColorChoices::kOne;
  const auto top = static_cast<std::uint8_t>(largest), bottom = static_cast<std::uint8_t>(smallest);
  const auto rising = static_cast<std::uint8_t>(smallest + rise);
  const auto falling = static_cast<std::uint8_t>(largest - rise);
  switch (turned / sixth) {
    case 0: return {top, rising, bottom};   // red to yellow
    case 1: return {falling, top, bottom};  // to green
    case 2: return {bottom, top, rising};   // to cyan
    case 3: return {bottom, falling, top};  // to blue
    case 4: return {rising, bottom, top};   // to magenta
    default: return {top, bottom, falling};
  }
}

/// Returns the color with the saturation and hue of a sample.
CONVOY_HOST_DEVICE constexpr Color change_color(const Color& color, const ColorChoices& by) {
  return rotate_hue(saturate(color, by.saturation), by.turn);
}

/// The source index of a pixel outside the image if padding is black.
inline constexpr int kBlack = -1;

/// Returns the source index in [0, size) of pixel i, or kBlack. Pixel i may be outside by less than `size`.
CONVOY_HOST_DEVICE constexpr int source_index(int i, int size, bool reflect) {
  if (0 <= i && i < size) return i;
  if (!reflect) return kBlack;
  return i < 0 ? -i : 2 * (size - 1) - i;
}

/// The normalization of a channel.
template <class T>
struct Normalization {
  T mean, inverse_std;
};

/// Returns the normalization of a channel of the sample `id`. The jitter of its brightness and contrast is
/// part of it, because (x + b) c = (pixel / 255 - (mean - b / inverse_std)) (c inverse_std). A random number
/// is a quotient, not a product: no multiplication precedes an addition, as in normalize_pixel().
template <class T>
CONVOY_HOST_DEVICE constexpr Normalization<T> choose_normalization(const AugmentOptions& options,
                                                                   const Random& random, std::uint64_t id,
                                                                   int channel) {
  const Normalization<T> constant{static_cast<T>(options.mean[static_cast<std::size_t>(channel)]),
                                  static_cast<T>(options.inverse_std[static_cast<std::size_t>(channel)])};
  if (options.jitter == 0) return constant;
  const auto words = random.words(id, 4);
  const auto brightness = static_cast<T>(static_cast<std::int32_t>(words[0]) >> 8);
  const auto contrast = static_cast<T>(static_cast<std::int32_t>(words[1]) >> 8);
  const T full =
      static_cast<T>(100 << 23) / static_cast<T>(options.jitter);  // the number whose quotient is 1
  return {constant.mean - brightness / (full * constant.inverse_std),
          constant.inverse_std * (1 + contrast / full)};
}

/// Returns (pixel / 255 - mean) inverse_std. Each of the three operations is rounded. No multiplication
/// precedes an addition, so no compiler can contract them to FMA, and all devices give the same bits.
template <class T>
CONVOY_HOST_DEVICE constexpr T normalize_pixel(std::uint8_t pixel, T mean, T inverse_std) {
  return (static_cast<T>(pixel) / 255 - mean) * inverse_std;
}

/// Returns a pixel that is mixed with its partner. A divisor of 1 returns the partner.
template <class T>
CONVOY_HOST_DEVICE constexpr T mix_pixel(T own, T partner, T divisor) {
  return divisor == 1 ? partner : own + (partner - own) / divisor;
}

}  // namespace convoy::kernels

// The arithmetic is that of torchvision on tensors of bytes, in f32 with the same order of operations, so results
// are the same to the last bit. Coordinates are f64, so points halfway between two pixels may choose the other one.
#include "convoy/datasets/transforms/transforms.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <vector>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"

namespace convoy::data {
namespace {

constexpr int kMaxMagnitude = 30, kMaxOperations = 16;
constexpr int kLevels = 256;
constexpr std::uint32_t kFirstWords =
    32;  // coordinate of Random::words(); smaller ones are those of augment()

/// Returns element `magnitude` of torch.linspace(begin, end, 31).
float level(double begin, double end, int magnitude) {
  const auto first = static_cast<float>(begin), last = static_cast<float>(end);
  const float step = (last - first) / kMaxMagnitude;
  return magnitude <= kMaxMagnitude / 2 - 1 ? first + step * static_cast<float>(magnitude)
                                            : last - step * static_cast<float>(kMaxMagnitude - magnitude);
}

std::uint8_t truncated(float value) { return static_cast<std::uint8_t>(std::clamp(value, 0.0f, 255.0f)); }

/// The weights of an image and of the one that it is blended with.
struct Blend {
  float own, other;

  explicit Blend(double factor) : own(static_cast<float>(factor)), other(static_cast<float>(1 - factor)) {}
  std::uint8_t operator()(float pixel, float with) const { return truncated(own * pixel + other * with); }
};

/// Returns the gray value of a pixel, as a byte; of one channel, its value.
std::uint8_t gray(const std::uint8_t* pixel, int channels) {
  if (channels == 1) return *pixel;
  return static_cast<std::uint8_t>(0.2989f * pixel[0] + 0.587f * pixel[1] + 0.114f * pixel[2]);
}

/// A linear map from a pixel of the result to one of the image, both relative to the center of the image.
struct Affine {
  double xx = 1, xy = 0, x0 = 0;  // x = xx x' + xy y' + x0
  double yx = 0, yy = 1, y0 = 0;  // y = yx x' + yy y' + y0
};

void resample(const Affine& from, const ByteImage& image) {
  const std::vector<std::uint8_t> before(image.pixels.begin(), image.pixels.end());
  const double center_x = 0.5 * (image.width - 1), center_y = 0.5 * (image.height - 1);
  std::uint8_t* to = image.pixels.data();
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x, to += image.channels) {
      const double dx = x - center_x, dy = y - center_y;
      // Rounds halves to even, as PyTorch does.
      const double column = std::nearbyint(from.xx * dx + from.xy * dy + from.x0 + center_x);
      const double row = std::nearbyint(from.yx * dx + from.yy * dy + from.y0 + center_y);
      if (column < 0 || column >= image.width || row < 0 || row >= image.height) {
        std::fill_n(to, image.channels, std::uint8_t{0});
      } else {
        const int pixel = static_cast<int>(row) * image.width + static_cast<int>(column);
        std::copy_n(before.begin() + std::ptrdiff_t{pixel} * image.channels, image.channels, to);
      }
    }
}

void adjust_color(double factor, const ByteImage& image) {
  if (image.channels == 1) return;
  const Blend blend(factor);
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    const std::uint8_t value = gray(&image.pixels[i], 3);
    for (std::size_t c = i; c < i + 3; ++c) image.pixels[c] = blend(image.pixels[c], value);
  }
}

void adjust_contrast(double factor, const ByteImage& image) {
  const auto channels = static_cast<std::size_t>(image.channels);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < image.pixels.size(); i += channels)
    sum += gray(&image.pixels[i], image.channels);
  const float mean = static_cast<float>(sum) / static_cast<float>(image.height * image.width);
  const Blend blend(factor);
  for (std::uint8_t& pixel : image.pixels) pixel = blend(pixel, mean);
}

/// Blends with the image whose inner pixels are means over 3 x 3 pixels, of which the center counts five times.
void adjust_sharpness(double factor, const ByteImage& image) {
  if (image.height <= 2 || image.width <= 2) return;
  const std::vector<std::uint8_t> before(image.pixels.begin(), image.pixels.end());
  const std::ptrdiff_t row = std::ptrdiff_t{image.width} * image.channels;
  const Blend blend(factor);
  for (std::ptrdiff_t i = 0; i < std::ssize(before); ++i) {
    const std::ptrdiff_t y = i / row, x = i % row / image.channels;
    const std::uint8_t* const center = before.data() + i;
    int smooth = *center;
    if (0 < y && y < image.height - 1 && 0 < x && x < image.width - 1) {
      int sum = 4 * *center;
      for (const std::ptrdiff_t down : {-row, std::ptrdiff_t{0}, row})
        for (const int right : {-image.channels, 0, image.channels}) sum += center[down + right];
      smooth = (2 * sum + 13) / 26;  // the nearest integer to sum / 13, which is never halfway
    }
    image.pixels[static_cast<std::size_t>(i)] = blend(*center, static_cast<float>(smooth));
  }
}

/// Calls f(channel) for each channel, and replaces each of its pixels by its entry of the resulting table.
template <class F>
void map_channels(const ByteImage& image, F f) {
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t c = 0; c < channels; ++c) {
    std::array<std::int64_t, kLevels> counts{};
    for (std::size_t i = c; i < image.pixels.size(); i += channels) ++counts[image.pixels[i]];
    const std::array<std::uint8_t, kLevels> table = f(counts);
    for (std::size_t i = c; i < image.pixels.size(); i += channels) image.pixels[i] = table[image.pixels[i]];
  }
}

using Counts = std::array<std::int64_t, kLevels>;
using Table = std::array<std::uint8_t, kLevels>;

int darkest(const Counts& counts) {
  return static_cast<int>(std::find_if(counts.begin(), counts.end(), [](auto n) { return n > 0; }) -
                          counts.begin());
}
int brightest(const Counts& counts) {
  return kLevels - 1 -
         static_cast<int>(std::find_if(counts.rbegin(), counts.rend(), [](auto n) { return n > 0; }) -
                          counts.rbegin());
}

Table stretch(const Counts& counts) {
  Table table{};
  const int low = darkest(counts), high = brightest(counts);
  const float scale = 255.0f / static_cast<float>(high - low);
  for (int i = 0; i < kLevels; ++i)
    table[static_cast<std::size_t>(i)] =
        high > low ? truncated(static_cast<float>(i - low) * scale) : static_cast<std::uint8_t>(i);
  return table;
}

Table equalize(const Counts& counts) {
  Table table{};
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  const std::int64_t step = (total - counts[static_cast<std::size_t>(brightest(counts))]) / 255;
  std::int64_t before = 0;  // pixels that are darker
  for (std::size_t i = 0; i < table.size(); before += counts[i], ++i)
    table[i] = static_cast<std::uint8_t>(step == 0 ? static_cast<std::int64_t>(i)
                                         : i == 0  ? 0
                                                   : std::min<std::int64_t>((before + step / 2) / step, 255));
  return table;
}

}  // namespace

RandAugmentOptions parse_rand_augment(std::string_view text) {
  if (text == "none") return {};
  RandAugmentOptions options;
  const char* const end = text.data() + text.size();
  const auto [comma, error] = std::from_chars(text.data(), end, options.operations);
  bool valid = error == std::errc() && comma != end && *comma == ',';
  if (valid) {
    const auto [rest, problem] = std::from_chars(comma + 1, end, options.magnitude);
    valid = problem == std::errc() && rest == end;
  }
  check_option(valid && 1 <= options.operations && options.operations <= kMaxOperations &&
                   0 <= options.magnitude && options.magnitude <= kMaxMagnitude,
               "RandAugmentOptions",
               "found '{}', expected none, or a number of operations from 1 to {} and a magnitude from 0 "
               "to {}, such as 2,9",
               text, kMaxOperations, kMaxMagnitude);
  return options;
}

void apply_operation(ImageOperation operation, int magnitude, bool negative, const ByteImage& image) {
  const double sign = negative ? -1 : 1;
  const auto signed_level = [&](double end) { return sign * static_cast<double>(level(0, end, magnitude)); };
  const auto shift = [&](int side) { return -std::trunc(signed_level(150.0 / 331.0 * side)); };
  const double factor = 1 + signed_level(0.9);
  switch (operation) {
    case ImageOperation::identity: return;
    case ImageOperation::shear_x: {
      const double shear = signed_level(0.3);
      return resample({.xy = shear, .x0 = shear * 0.5 * image.height}, image);
    }
    case ImageOperation::shear_y: {
      const double shear = signed_level(0.3);
      return resample({.yx = shear, .y0 = shear * 0.5 * image.width}, image);
    }
    case ImageOperation::translate_x: return resample({.x0 = shift(image.width)}, image);
    case ImageOperation::translate_y: return resample({.y0 = shift(image.height)}, image);
    case ImageOperation::rotate: {
      const double angle = signed_level(30) * std::numbers::pi / 180;
      return resample(
          {.xx = std::cos(angle), .xy = -std::sin(angle), .yx = std::sin(angle), .yy = std::cos(angle)},
          image);
    }
    case ImageOperation::brightness: {
      const Blend blend(factor);
      for (std::uint8_t& pixel : image.pixels) pixel = blend(pixel, 0);
      return;
    }
    case ImageOperation::color: return adjust_color(factor, image);
    case ImageOperation::contrast: return adjust_contrast(factor, image);
    case ImageOperation::sharpness: return adjust_sharpness(factor, image);
    case ImageOperation::posterize: {
      const int removed = static_cast<int>(std::nearbyint(static_cast<float>(magnitude) / 7.5f));
      for (std::uint8_t& pixel : image.pixels) pixel = static_cast<std::uint8_t>(pixel >> removed << removed);
      return;
    }
    case ImageOperation::solarize: {
      const float threshold = level(255, 0, magnitude);
      for (std::uint8_t& pixel : image.pixels)
        if (pixel >= threshold) pixel = static_cast<std::uint8_t>(255 - pixel);
      return;
    }
    case ImageOperation::auto_contrast: return map_channels(image, stretch);
    case ImageOperation::equalize: return map_channels(image, equalize);
  }
}

void rand_augment(const RandAugmentOptions& options, const Random& random, std::uint64_t id,
                  const ByteImage& image) {
  for (int k = 0; k < options.operations; ++k) {
    const auto words = random.words(id, kFirstWords + static_cast<std::uint32_t>(k));
    apply_operation(static_cast<ImageOperation>(to_below(words[0], std::uint32_t{kImageOperations.size()})),
                    options.magnitude, words[1] >> 31 != 0, image);
  }
}

}  // namespace convoy::data

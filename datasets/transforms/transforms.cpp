#include "convoy/datasets/transforms/transforms.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"

namespace convoy::data {
namespace {

constexpr int kDefaultCropPadding = 4;  // He et al., arXiv:1512.03385, section 4.2
constexpr int kDefaultCutout = 8;       // pixels per side
constexpr int kDefaultMinArea = 8;      // percent
constexpr int kDefaultRotation = 15;    // degrees
constexpr int kDefaultJitter = 10;      // percent, of brightness and contrast
constexpr int kDefaultSaturation = 10;  // percent
constexpr int kDefaultHue = 5;          // percent of the color circle
constexpr int kMaxNumber = 1024;        // pixels; check_image_shape() compares with the images
// One level of a pixel value, so that the noise of a constant channel is not amplified.
constexpr float kMinStd = 1.0f / 255.0f;

constexpr const char* kExpected =
    "expected auto, none, or a comma-separated list of crop[=PIXELS], reflect, original-crop[=PERCENT], "
    "rotation[=DEGREES], resized-crop[=PERCENT], flip, alternating-flip, cutout[=PIXELS], "
    "jitter[=PERCENT], saturation[=PERCENT] and hue[=PERCENT]";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// Returns the 4 of "crop=4", and `default_value` for "crop".
int number(std::string_view word, int default_value, const char* what = "number of pixels",
           int maximum = kMaxNumber) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return default_value;
  const std::string_view digits = trimmed(word.substr(equals + 1));
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  check_option(error == std::errc() && end == digits.data() + digits.size() && 1 <= value && value <= maximum,
               "AugmentOptions", "found '{}', expected a {} from 1 to {} after '='", word, what, maximum);
  return value;
}

std::string_view word_name(std::string_view word) { return trimmed(word.substr(0, word.find('='))); }

/// Sets the option that one word of the list names, such as "crop=4".
void apply(std::string_view word, TransformSpec& spec) {
  kernels::AugmentOptions& augment = spec.augment;
  if (word_name(word) == "crop") {
    augment.crop_padding = number(word, kDefaultCropPadding);
  } else if (word_name(word) == "cutout") {
    augment.cutout = number(word, kDefaultCutout);
  } else if (word_name(word) == "resized-crop") {
    augment.min_area = number(word, kDefaultMinArea, "percentage", 100);
  } else if (word_name(word) == "original-crop") {
    spec.original.min_area = number(word, kDefaultMinArea, "percentage", 100);
  } else if (word_name(word) == "rotation") {
    spec.original.rotation = number(word, kDefaultRotation, "number of degrees", 180);
  } else if (word_name(word) == "jitter") {
    augment.jitter = number(word, kDefaultJitter, "percentage", 100);
  } else if (word_name(word) == "saturation") {
    augment.saturation = number(word, kDefaultSaturation, "percentage", 100);
  } else if (word_name(word) == "hue") {
    augment.hue = number(word, kDefaultHue, "percentage of the color circle", 50);
  } else if (word == "reflect") {
    augment.reflect = true;
  } else if (word == "flip" || word == "alternating-flip") {
    check_option(!augment.flip, "AugmentOptions",
                 "found two kinds of flips, expected flip or alternating-flip");
    augment.flip = true;
    augment.alternate_flips = word != "flip";
  } else {
    fail_option("AugmentOptions", "found '{}', {}", word, kExpected);
  }
}

void parse(std::string_view text, TransformSpec& spec) {
  std::set<std::string_view> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = trimmed(text.substr(begin, end - begin));
    check_option(names.insert(word_name(word)).second, "AugmentOptions", "'{}' names '{}' twice", text,
                 word_name(word));
    apply(word, spec);
    begin = end + 1;
  }
  const kernels::AugmentOptions& augment = spec.augment;
  check_option(!augment.reflect || augment.crop_padding > 0, "AugmentOptions",
               "found 'reflect' without 'crop', expected both: it fills the padding of the crop");
  check_option(augment.min_area == 0 || augment.crop_padding == 0, "AugmentOptions",
               "found 'crop' and 'resized-crop', expected one of them");
  check_option(augment.min_area == 0 || spec.original.min_area == 0, "AugmentOptions",
               "found 'original-crop' and 'resized-crop', expected one of them");
}

}  // namespace

TransformSpec TransformSpec::evaluation() const {
  return {.augment = {.mean = augment.mean, .inverse_std = augment.inverse_std}};
}

std::vector<TransformSpec::View> TransformSpec::views() const {
  std::vector<View> all;
  for (const int shift : {0, 1, -1})
    for (const bool mirror : {false, true}) {
      TransformSpec spec = evaluation();
      spec.augment.reflect = true;
      spec.augment.down = spec.augment.right = shift;
      spec.augment.mirror = mirror;
      all.push_back({.transform = spec, .weight = shift == 0 ? 0.25 : 0.125});
    }
  return all;
}

std::string TransformSpec::describe() const {
  std::string text;
  if (original.min_area > 0) text += fmt::format("crop of the original image from {}%, ", original.min_area);
  if (original.rotation > 0) text += fmt::format("rotation within {} degrees, ", original.rotation);
  if (augment.crop_padding > 0)
    text += fmt::format("crop {}{}, ", augment.crop_padding, augment.reflect ? " (reflected)" : "");
  if (augment.min_area > 0) text += fmt::format("resized crop from {}%, ", augment.min_area);
  if (augment.flip) text += augment.alternate_flips ? "alternating flip, " : "flip, ";
  if (augment.cutout > 0) text += fmt::format("cutout {}, ", augment.cutout);
  if (augment.random_erasing > 0)
    text += fmt::format("random erasing of {:.3g}%, ", 100 * augment.random_erasing);
  if (mixing.mixup > 0) text += fmt::format("mixup (alpha {}), ", mixing.mixup);
  if (mixing.cutmix > 0) text += fmt::format("CutMix (alpha {}), ", mixing.cutmix);
  if (augment.jitter > 0) text += fmt::format("brightness and contrast within {}%, ", augment.jitter);
  if (augment.saturation > 0) text += fmt::format("saturation within {}%, ", augment.saturation);
  if (augment.hue > 0) text += fmt::format("hue within {}% of the circle, ", augment.hue);

  std::size_t channels = augment.mean.size();  // trailing channels without normalization are not shown
  while (channels > 0 && augment.mean[channels - 1] == 0 && augment.inverse_std[channels - 1] == 1)
    --channels;
  if (channels == 0) return text + "not normalised";
  std::string means, stds;
  for (std::size_t c = 0; c < channels; ++c) {
    means += fmt::format(" {:.3f}", augment.mean[c]);
    stds += fmt::format(" {:.3f}", 1 / augment.inverse_std[c]);
  }
  return text + fmt::format("normalise (mean{}, std{})", means, stds);
}

void TransformSpec::check_image_shape(std::int64_t height, std::int64_t width, std::int64_t channels) const {
  const std::int64_t side = std::min(height, width);
  check_option(augment.crop_padding < side, "AugmentOptions",
               "found crop={}, expected less than the images' {} pixels ({}x{})", augment.crop_padding, side,
               height, width);
  check_option(augment.cutout <= side, "AugmentOptions",
               "found cutout={}, expected at most the images' {} pixels ({}x{})", augment.cutout, side,
               height, width);
  check_option((augment.saturation == 0 && augment.hue == 0) || channels == 3, "AugmentOptions",
               "found saturation or hue, and images of {} channels, expected 3 (red, green, blue)", channels);
  check_option(mixing.mixup >= 0 && mixing.cutmix >= 0, "MixingOptions",
               "found mixup {} and cutmix {}, expected 0 or more", mixing.mixup, mixing.cutmix);
}

TransformSpec make_transform(std::string_view text, const ChannelStatistics& statistics,
                             const TransformOptions& options) {
  TransformSpec spec;
  const std::string_view words = trimmed(text);
  if (words == "auto") {
    if (options.natural_images) spec.augment = {.crop_padding = kDefaultCropPadding, .flip = true};
  } else if (words != "none") {
    parse(words, spec);
  }
  for (std::size_t c = 0; c < statistics.mean.size(); ++c) {
    const bool black = statistics.mean[c] == 0 && statistics.std[c] == 0;  // or an absent channel
    if (black) continue;
    spec.augment.mean[c] = statistics.mean[c];
    spec.augment.inverse_std[c] = 1 / std::max(statistics.std[c], kMinStd);
  }
  return spec;
}

namespace {

// The second coordinate of the random words of a step. Those of samples are smaller.
constexpr std::uint32_t kMethodWords = 0x40000000, kBetaWords = kMethodWords + 1;

/// Returns a uniform number in (0, 1).
double open_uniform(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }

/// Rounds to a multiple of 2^-16, so that the last bits of the machine's logarithms and powers do not matter.
double rounded(double weight) { return std::round(weight * 0x1p16) * 0x1p-16; }

/// Returns the box of CutMix: its sides are those of the image times sqrt(1 - weight), its center is anywhere, and
/// what is outside the image is cut off. The weight becomes the part of the area outside the box.
Mixing cut_box(double weight, std::uint32_t y, std::uint32_t x, std::int64_t height, std::int64_t width) {
  const double half = 0.5 * std::sqrt(1 - weight);
  const auto half_of = [half](std::int64_t side) {
    return static_cast<std::int64_t>(half * static_cast<double>(side));
  };
  const std::int64_t row = to_below(y, static_cast<std::uint32_t>(height));
  const std::int64_t column = to_below(x, static_cast<std::uint32_t>(width));
  Mixing mixing{.top = std::max<std::int64_t>(row - half_of(height), 0),
                .bottom = std::min(row + half_of(height), height),
                .left = std::max<std::int64_t>(column - half_of(width), 0),
                .right = std::min(column + half_of(width), width)};
  const auto area = static_cast<double>((mixing.bottom - mixing.top) * (mixing.right - mixing.left));
  mixing.weight = rounded(1 - area / static_cast<double>(height * width));
  return mixing;
}

}  // namespace

std::array<double, kernels::kMixingNumbers> Mixing::numbers() const {
  return {divisor,
          static_cast<double>(top),
          static_cast<double>(bottom),
          static_cast<double>(left),
          static_cast<double>(right),
          weight};
}

double draw_beta(double alpha, const Random& random, std::uint64_t a, std::uint32_t b) {
  while (true) {
    const auto words = random.words(a, b++);
    const double u = open_uniform(words[0]), v = open_uniform(words[1]);
    if (alpha >= 1) {
      // Rejection from the uniform distribution: the density relative to its maximum, at 1/2.
      if (v < std::pow(4 * u * (1 - u), alpha - 1)) return u;
    } else {
      // Jöhnk's method: with x = u^(1/alpha) and y = v^(1/alpha) whose sum is at most 1, x / (x + y).
      const double log_x = std::log(u) / alpha, log_y = std::log(v) / alpha;
      if (std::exp(log_x) + std::exp(log_y) <= 1) return 1 / (1 + std::exp(log_y - log_x));
    }
  }
}

Mixing choose_mixing(const MixingOptions& options, std::uint64_t seed, std::int64_t epoch, std::int64_t step,
                     std::int64_t height, std::int64_t width) {
  const Random random{seed, RandomPurpose::augmentation, static_cast<std::uint32_t>(epoch)};
  const auto key = static_cast<std::uint64_t>(step);
  const auto words = random.words(key, kMethodWords);
  const bool cuts = options.mixup == 0 || (options.cutmix > 0 && words[0] >> 31 != 0);
  const double weight = rounded(draw_beta(cuts ? options.cutmix : options.mixup, random, key, kBetaWords));
  if (cuts) return cut_box(weight, words[1], words[2], height, width);
  // own + (partner - own) / divisor = weight own + (1 - weight) partner.
  const double divisor = weight < 1 ? 1 / (1 - weight) : std::numeric_limits<double>::infinity();
  return {.weight = weight, .divisor = divisor, .bottom = height, .right = width};
}

}  // namespace convoy::data

#include "datasets/transforms.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "kernels/runtime/check.h"

namespace convoy {
namespace {

constexpr int kDefaultCropPadding = 4;  // He et al., arXiv:1512.03385, section 4.2
constexpr int kDefaultCutout = 8;
constexpr int kDefaultLeastArea = 8;  // percent
constexpr int kLargestNumber = 1024;  // pixels; check_image_size() knows the images and asks for less
// One level of a pixel: a flat channel is not blown up to noise.
constexpr float kSmallestStd = 1.0f / 255.0f;

constexpr const char* kExpected =
    "expected auto, none, or a comma list of crop[=PIXELS], reflect, resized-crop[=PERCENT], flip and "
    "cutout[=PIXELS]";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// The 4 of "crop=4"; `otherwise` for "crop".
int number(std::string_view word, int otherwise, const char* what = "number of pixels",
           int most = kLargestNumber) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return otherwise;
  const std::string_view digits = trimmed(word.substr(equals + 1));
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  check(error == std::errc() && end == digits.data() + digits.size() && 1 <= value && value <= most,
        "--augment: found '{}', expected a {} from 1 to {} after '='", word, what, most);
  return value;
}

std::string_view name_of_word(std::string_view word) { return trimmed(word.substr(0, word.find('='))); }

/// One word of the list, "crop=4", into the options.
void apply(std::string_view word, AugmentOptions& augment) {
  if (name_of_word(word) == "crop") {
    augment.crop_padding = number(word, kDefaultCropPadding);
  } else if (name_of_word(word) == "cutout") {
    augment.cutout = number(word, kDefaultCutout);
  } else if (name_of_word(word) == "resized-crop") {
    augment.least_area = number(word, kDefaultLeastArea, "percentage", 100);
  } else if (word == "reflect") {
    augment.reflect = true;
  } else if (word == "flip") {
    augment.flip = true;
  } else {
    fail<UsageError>("--augment: found '{}', {}", word, kExpected);
  }
}

AugmentOptions parse(std::string_view text) {
  AugmentOptions augment;
  std::set<std::string_view> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = trimmed(text.substr(begin, end - begin));
    apply(word, augment);
    check(names.insert(name_of_word(word)).second, "--augment: '{}' names '{}' twice", text,
          name_of_word(word));
    begin = end + 1;
  }
  check(!augment.reflect || augment.crop_padding > 0,
        "--augment: found 'reflect' without 'crop', expected both: it says what lies outside the image");
  check(augment.least_area == 0 || augment.crop_padding == 0,
        "--augment: found 'crop' and 'resized-crop', expected one of them");
  return augment;
}

}  // namespace

TransformSpec TransformSpec::evaluation() const {
  return {.augment = {.mean = augment.mean, .inverse_std = augment.inverse_std}};
}

std::string TransformSpec::describe() const {
  std::string text;
  if (augment.crop_padding > 0)
    text += fmt::format("crop {}{}, ", augment.crop_padding, augment.reflect ? " (reflected)" : "");
  if (augment.least_area > 0) text += fmt::format("resized crop from {}%, ", augment.least_area);
  if (augment.flip) text += "flip, ";
  if (augment.cutout > 0) text += fmt::format("cutout {}, ", augment.cutout);

  std::size_t channels = augment.mean.size();  // those that are left as they are at the end are not shown
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

void TransformSpec::check_image_size(std::int64_t height, std::int64_t width) const {
  const std::int64_t side = std::min(height, width);
  check(augment.crop_padding < side,
        "--augment: found crop={}, expected less than the images' {} pixels ({}x{})", augment.crop_padding,
        side, height, width);
  check(augment.cutout <= side, "--augment: found cutout={}, expected at most the images' {} pixels ({}x{})",
        augment.cutout, side, height, width);
}

TransformSpec make_transform(std::string_view text, const ChannelStatistics& statistics, bool natural) {
  TransformSpec spec;
  const std::string_view words = trimmed(text);
  if (words == "auto") {
    if (natural) spec.augment = {.crop_padding = kDefaultCropPadding, .flip = true};
  } else if (words != "none") {
    spec.augment = parse(words);
  }
  for (std::size_t c = 0; c < statistics.mean.size(); ++c) {
    const bool black = statistics.mean[c] == 0 && statistics.std[c] == 0;  // or a channel that is not there
    if (black) continue;
    spec.augment.mean[c] = statistics.mean[c];
    spec.augment.inverse_std[c] = 1 / std::max(statistics.std[c], kSmallestStd);
  }
  return spec;
}

}  // namespace convoy

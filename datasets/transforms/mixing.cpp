#include "convoy/datasets/transforms/mixing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace convoy::data {
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

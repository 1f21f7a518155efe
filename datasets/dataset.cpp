#include "datasets/dataset.h"

#include <algorithm>
#include <cmath>

#include "datasets/readers.h"
#include "datasets/resize.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

// Not ISO C++, but exact. __extension__ takes no alias declaration.
__extension__ typedef unsigned __int128 uint128;  // NOLINT(modernize-use-using)

/// By channel. Integers: exact, so the result is the same in any order. 255^2 times the pixels that fit into
/// memory stays far below 2^64.
struct ChannelSums {
  std::array<std::uint64_t, 4> of_values{}, of_squares{};
};

ChannelSums channel_sums(const std::uint8_t* values, std::int64_t count, std::size_t channels) {
  // Value i is of channel i % channels, and so is lane i % kLanes: a multiple of 1, 2, 3 and 4, so that a
  // vector of neighbours is summed at once, in 32 bits for as long as 255^2 a round cannot pass them.
  constexpr std::size_t kLanes = 48;
  constexpr std::int64_t kRounds = 65536;
  ChannelSums sums;
  for (std::int64_t begin = 0; begin < count; begin += kRounds * std::int64_t{kLanes}) {
    const std::int64_t size = std::min(count - begin, kRounds * std::int64_t{kLanes});
    std::array<std::uint32_t, kLanes> of_values{}, of_squares{};
    const auto add = [&](const std::uint8_t* from, std::size_t lanes) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const std::uint32_t value = from[lane];
        of_values[lane] += value;
        of_squares[lane] += value * value;
      }
    };
    const std::int64_t whole = size / std::int64_t{kLanes} * std::int64_t{kLanes};
    for (std::int64_t i = 0; i < whole; i += kLanes) add(values + begin + i, kLanes);
    add(values + begin + whole, static_cast<std::size_t>(size - whole));
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums.of_values[lane % channels] += of_values[lane];
      sums.of_squares[lane % channels] += of_squares[lane];
    }
  }
  return sums;
}

}  // namespace

Shape DataSet::image_shape() const {
  check(train.images.defined(), "data set {}: has no training images", name);
  return {train.images.size(1), train.images.size(2), train.images.size(3)};
}

ChannelStatistics channel_statistics(const ImageSet& set) {
  check(set.size() > 0, "channel statistics: the set holds no images");
  const std::int64_t channels = set.images.size(3);
  check(channels >= 1 && channels <= 4, "channel statistics: {} channels, expected 1 to 4", channels);
  const auto* values = set.images.view().as<std::uint8_t>();
  const std::int64_t pixels = set.images.numel() / channels;
  const ChannelSums sums = channel_sums(values, set.images.numel(), static_cast<std::size_t>(channels));
  ChannelStatistics statistics;
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    // The variance as (n Σx² - (Σx)²) / n²: the difference is taken in 128-bit integers, so nothing cancels.
    const auto n = static_cast<uint128>(pixels);
    const uint128 scaled =
        n * sums.of_squares[c] - static_cast<uint128>(sums.of_values[c]) * sums.of_values[c];
    const auto count = static_cast<double>(pixels);
    statistics.mean[c] = static_cast<float>(static_cast<double>(sums.of_values[c]) / count / 255);
    statistics.std[c] = static_cast<float>(std::sqrt(static_cast<double>(scaled)) / count / 255);
  }
  return statistics;
}

void check_read_options(const ReadOptions& options) {
  check_image_side(options.image_size);
  check(options.test_fraction > 0 && options.test_fraction < 1,
        "test fraction {}: expected more than 0 and less than 1", options.test_fraction);
  check(options.workers >= 0, "--workers {}: expected 0 or more", options.workers);
}

}  // namespace convoy

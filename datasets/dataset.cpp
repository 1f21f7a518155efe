#include "datasets/dataset.h"

#include <cmath>

#include "datasets/readers.h"
#include "datasets/resize.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

// Not ISO C++, but exact. __extension__ takes no alias declaration.
__extension__ typedef unsigned __int128 uint128;  // NOLINT(modernize-use-using)

}  // namespace

Shape DataSet::image_shape() const {
  check(train.images.defined(), "data set {}: has no training images", name);
  return {train.images.size(1), train.images.size(2), train.images.size(3)};
}

ChannelStatistics channel_statistics(const ImageSet& set) {
  check(set.size() > 0, "channel statistics: the set holds no images");
  const std::int64_t channels = set.images.size(3);
  check(channels >= 1 && channels <= 4, "channel statistics: {} channels, expected 1 to 4", channels);
  // Integer sums: exact, so the result is the same in any order. 255^2 times the pixels that fit into memory
  // stays far below 2^64.
  std::array<std::uint64_t, 4> sum{}, sum_of_squares{};
  const auto* values = set.images.view().as<std::uint8_t>();
  const std::int64_t pixels = set.images.numel() / channels;
  for (std::int64_t i = 0; i < pixels; ++i)
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::uint64_t value = values[i * channels + c];
      sum[static_cast<std::size_t>(c)] += value;
      sum_of_squares[static_cast<std::size_t>(c)] += value * value;
    }
  ChannelStatistics statistics;
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    // The variance as (n Σx² - (Σx)²) / n²: the difference is taken in 128-bit integers, so nothing cancels.
    const auto n = static_cast<uint128>(pixels);
    const uint128 scaled = n * sum_of_squares[c] - static_cast<uint128>(sum[c]) * sum[c];
    const auto count = static_cast<double>(pixels);
    statistics.mean[c] = static_cast<float>(static_cast<double>(sum[c]) / count / 255);
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

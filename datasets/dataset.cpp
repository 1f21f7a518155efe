#include "convoy/datasets/dataset.h"

#include <algorithm>
#include <cmath>

#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

// Not ISO C++, but exact. __extension__ cannot be applied to an alias declaration.
__extension__ typedef unsigned __int128 uint128;  // NOLINT(modernize-use-using)

/// The sums of one channel's values and squares. Integer sums are exact, so they do not depend on the order.
/// They cannot overflow: 255^2 times the number of pixels that fit into memory is far below 2^64.
struct ChannelSums {
  std::array<std::uint64_t, 4> of_values{}, of_squares{};
};

ChannelSums channel_sums(const std::uint8_t* values, std::int64_t count, std::size_t channels) {
  // Value i belongs to channel i % channels. kLanes is a multiple of 1, 2, 3 and 4, so lane i % kLanes
  // belongs to the same channel, and adjacent values are summed as a vector. kRounds * 255^2 fits into 32
  // bits.
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
  check(train.images.defined(), "data set {}: no training images, expected at least one", name);
  return {train.images.size(1), train.images.size(2), train.images.size(3)};
}

std::vector<std::int64_t> class_counts(const ImageSet& set, std::size_t classes) {
  std::vector<std::int64_t> counts(classes);
  if (set.size() == 0) return counts;
  for (const std::int32_t label : set.labels.to_vector<std::int32_t>())
    ++counts.at(static_cast<std::size_t>(label));
  return counts;
}

ImageSet select(const ImageSet& set, const std::vector<std::int32_t>& rows) {
  const auto count = std::ssize(rows);
  const Shape& all = set.images.shape();
  ImageSet selected{Tensor::empty({count, all[1], all[2], all[3]}, set.images.dtype(), set.images.context()),
                    Tensor::empty({count}, set.labels.dtype(), set.labels.context())};
  selected.decode = set.decode;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t from = rows[static_cast<std::size_t>(i)];
    selected.images.rows(i, i + 1).copy_from(set.images.rows(from, from + 1));
    selected.labels.rows(i, i + 1).copy_from(set.labels.rows(from, from + 1));
    if (!set.files.empty()) selected.files.push_back(set.files[static_cast<std::size_t>(from)]);
  }
  return selected;
}

ChannelStatistics channel_statistics(const ImageSet& set) {
  check(set.size() > 0, "channel statistics: the set has no images, expected at least one");
  const std::int64_t channels = set.images.size(3);
  check(channels >= 1 && channels <= 4, "channel statistics: {} channels, expected 1 to 4", channels);
  const auto* values = set.images.view().as<std::uint8_t>();
  const std::int64_t pixels = set.images.numel() / channels;
  const ChannelSums sums = channel_sums(values, set.images.numel(), static_cast<std::size_t>(channels));
  ChannelStatistics statistics;
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    // The variance is (n Σx² - (Σx)²) / n². The difference in 128-bit integers is exact: no cancellation.
    const auto n = static_cast<uint128>(pixels);
    const uint128 scaled =
        n * sums.of_squares[c] - static_cast<uint128>(sums.of_values[c]) * sums.of_values[c];
    const auto count = static_cast<double>(pixels);
    statistics.mean[c] = static_cast<float>(static_cast<double>(sums.of_values[c]) / count / 255);
    statistics.std[c] = static_cast<float>(std::sqrt(static_cast<double>(scaled)) / count / 255);
  }
  return statistics;
}

}  // namespace convoy::data

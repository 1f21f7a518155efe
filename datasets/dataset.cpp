#include "convoy/datasets/dataset.h"

#include <algorithm>
#include <cmath>

#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

// Not ISO C++, but exact. __extension__ cannot be applied to an alias declaration.
__extension__ typedef unsigned __int128 uint128;  // NOLINT(modernize-use-using)

}  // namespace

std::string ImageSet::file(std::int64_t row) const {
  if (source) return source->file(row);
  return files.empty() ? "" : files.at(static_cast<std::size_t>(row));
}

OriginalImage ImageSet::original(std::int64_t row, std::int64_t side) const {
  return source ? source->decode(row, side) : decode(files.at(static_cast<std::size_t>(row)), side);
}

Shape DataSet::image_shape() const {
  check(train.size() > 0, "data set {}: no training images, expected at least one", name);
  return {train.shape()[1], train.shape()[2], train.shape()[3]};
}

std::vector<std::int64_t> class_counts(const ImageSet& set, std::size_t classes) {
  if (set.source) return set.source->about().class_counts;
  std::vector<std::int64_t> counts(classes);
  if (set.size() == 0) return counts;
  for (const std::int32_t label : set.labels.to_vector<std::int32_t>())
    ++counts.at(static_cast<std::size_t>(label));
  return counts;
}

ChannelStatistics channel_statistics(const ImageSet& set) {
  check(set.size() > 0, "channel statistics: the set has no images, expected at least one");
  if (set.source) return set.source->about().statistics;
  const std::int64_t channels = set.images.size(3);
  check(channels >= 1 && channels <= 4, "channel statistics: {} channels, expected 1 to 4", channels);
  ChannelSums sums;
  sums.add(set.images.view().as<std::uint8_t>(), set.images.numel() / channels,
           static_cast<std::size_t>(channels));
  return sums.statistics();
}

void ChannelSums::add(const std::uint8_t* values, std::int64_t added, std::size_t channels) {
  // Value i belongs to channel i % channels. kLanes is a multiple of 1, 2, 3 and 4, so lane i % kLanes
  // belongs to the same channel, and adjacent values are summed as a vector. kRounds * 255^2 fits into 32
  // bits.
  constexpr std::size_t kLanes = 48;
  constexpr std::int64_t kRounds = 65536;
  const std::int64_t count = added * static_cast<std::int64_t>(channels);
  for (std::int64_t begin = 0; begin < count; begin += kRounds * std::int64_t{kLanes}) {
    const std::int64_t size = std::min(count - begin, kRounds * std::int64_t{kLanes});
    std::array<std::uint32_t, kLanes> lane_values{}, lane_squares{};
    const auto add = [&](const std::uint8_t* from, std::size_t lanes) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const std::uint32_t value = from[lane];
        lane_values[lane] += value;
        lane_squares[lane] += value * value;
      }
    };
    const std::int64_t whole = size / std::int64_t{kLanes} * std::int64_t{kLanes};
    for (std::int64_t i = 0; i < whole; i += kLanes) add(values + begin + i, kLanes);
    add(values + begin + whole, static_cast<std::size_t>(size - whole));
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      of_values[lane % channels] += lane_values[lane];
      of_squares[lane % channels] += lane_squares[lane];
    }
  }
  pixels += static_cast<std::uint64_t>(added);
}

void ChannelSums::add(const ChannelSums& sums) {
  for (std::size_t c = 0; c < of_values.size(); ++c) {
    of_values[c] += sums.of_values[c];
    of_squares[c] += sums.of_squares[c];
    if (of_squares[c] < sums.of_squares[c])
      fail<DataError>("channel statistics: more than 2^64 in a sum of squares, expected fewer pixels");
  }
  pixels += sums.pixels;
}

ChannelStatistics ChannelSums::statistics() const {
  ChannelStatistics statistics;
  for (std::size_t c = 0; c < of_values.size(); ++c) {
    // The variance is (n Σx² - (Σx)²) / n². The difference in 128-bit integers is exact: no cancellation.
    const uint128 scaled =
        uint128{pixels} * of_squares[c] - static_cast<uint128>(of_values[c]) * of_values[c];
    const auto count = static_cast<double>(pixels);
    statistics.mean[c] = static_cast<float>(static_cast<double>(of_values[c]) / count / 255);
    statistics.std[c] = static_cast<float>(std::sqrt(static_cast<double>(scaled)) / count / 255);
  }
  return statistics;
}

}  // namespace convoy::data

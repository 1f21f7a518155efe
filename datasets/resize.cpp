#include "datasets/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "datasets/files.h"
#include "kernels/runtime/check.h"
#include "kernels/runtime/parallel.h"

namespace convoy {
namespace {

/// The filter along one axis: out[i] = sum over k of weights[i * most + k] in[first[i] + k], k < count[i].
struct Taps {
  std::vector<std::int64_t> first, count;
  std::vector<float> weights;
  std::int64_t most = 0;

  Taps(std::int64_t side, std::int64_t size, double scale) {
    const double reach = std::max(scale, 1.0);
    most = static_cast<std::int64_t>(2 * std::ceil(reach)) + 1;
    first.resize(static_cast<std::size_t>(size));
    count.resize(static_cast<std::size_t>(size));
    weights.resize(static_cast<std::size_t>(size * most));
    for (std::int64_t i = 0; i < size; ++i) {
      const double centre = (static_cast<double>(i) + 0.5 - static_cast<double>(size) / 2) * scale +
                            static_cast<double>(side) / 2;  // pixel j covers j … j + 1
      const auto begin = std::max<std::int64_t>(0, std::llround(std::ceil(centre - reach - 0.5)));
      const auto end = std::min<std::int64_t>(side, std::llround(std::floor(centre + reach - 0.5)) + 1);
      float* row = &weights[static_cast<std::size_t>(i * most)];
      double sum = 0;
      for (std::int64_t j = begin; j < end; ++j)
        sum += std::max(0.0, 1 - std::abs(static_cast<double>(j) + 0.5 - centre) / reach);
      for (std::int64_t j = begin; j < end; ++j)
        row[j - begin] = static_cast<float>(
            std::max(0.0, 1 - std::abs(static_cast<double>(j) + 0.5 - centre) / reach) / sum);
      first[static_cast<std::size_t>(i)] = begin;
      count[static_cast<std::size_t>(i)] = end - begin;
    }
  }
};

}  // namespace

void resize_to_square(const PixelView& image, std::int64_t size, std::uint8_t* out) {
  const std::int64_t channels = image.channels;
  if (image.height == size && image.width == size) {
    std::memcpy(out, image.pixels, static_cast<std::size_t>(size * size * channels));
    return;
  }
  const double scale = static_cast<double>(std::min(image.height, image.width)) / static_cast<double>(size);
  const Taps columns(image.width, size, scale);
  const Taps rows(image.height, size, scale);
  const std::int64_t row_values = size * channels;
  const std::int64_t top = rows.first.front();
  const std::int64_t bottom = rows.first.back() + rows.count.back();
  // Rows first become `size` wide, only those that an output row looks at: a strip of 1 x 60000 pixels costs
  // little.
  std::vector<float> narrow(static_cast<std::size_t>((bottom - top) * row_values), 0.0f);
  for (std::int64_t y = top; y < bottom; ++y) {
    const std::uint8_t* in = image.pixels + y * image.width * channels;
    float* row = &narrow[static_cast<std::size_t>((y - top) * row_values)];
    for (std::int64_t x = 0; x < size; ++x) {
      const auto i = static_cast<std::size_t>(x);
      const float* weights = &columns.weights[i * static_cast<std::size_t>(columns.most)];
      for (std::int64_t k = 0; k < columns.count[i]; ++k)
        for (std::int64_t c = 0; c < channels; ++c)
          row[x * channels + c] += weights[k] * static_cast<float>(in[(columns.first[i] + k) * channels + c]);
    }
  }
  std::vector<float> sums(static_cast<std::size_t>(row_values));
  for (std::int64_t y = 0; y < size; ++y) {
    const auto i = static_cast<std::size_t>(y);
    std::fill(sums.begin(), sums.end(), 0.5f);  // rounds to nearest in the cast below
    for (std::int64_t k = 0; k < rows.count[i]; ++k) {
      const float weight =
          rows.weights[i * static_cast<std::size_t>(rows.most) + static_cast<std::size_t>(k)];
      const float* row = &narrow[static_cast<std::size_t>((rows.first[i] + k - top) * row_values)];
      for (std::int64_t v = 0; v < row_values; ++v) sums[static_cast<std::size_t>(v)] += weight * row[v];
    }
    for (std::int64_t v = 0; v < row_values; ++v)
      out[y * row_values + v] =
          static_cast<std::uint8_t>(std::clamp(sums[static_cast<std::size_t>(v)], 0.0f, 255.0f));
  }
}

void check_image_side(int size) {
  constexpr int kMost = 4096;
  check(size >= 0 && size <= kMost, "--image-size {}: expected 0 (as they are) to {} pixels", size, kMost);
}

ImageSet resized(const ImageSet& set, int size, int workers) {
  const std::int64_t count = set.size(), height = set.images.size(1), width = set.images.size(2);
  const std::int64_t channels = set.images.size(3);
  if (size == 0 || (height == size && width == size)) return set;
  const Tensor images = allocate_images("resizing", count, size, size, channels);
  const auto* in = set.images.view().as<std::uint8_t>();
  auto* out = images.view().as<std::uint8_t>();
  const CpuStream stream({.threads = std::max(workers, 1)});
  parallel_for(stream, count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      resize_to_square({in + i * height * width * channels, height, width, channels}, size,
                       out + i * size * size * channels);
  });
  return {images, set.labels};
}

}  // namespace convoy

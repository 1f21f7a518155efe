#include "convoy/datasets/transforms/resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "convoy/datasets/files.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::data {
namespace {

// The values of a pixel of up to four channels.
using Lanes = float __attribute__((vector_size(4 * sizeof(float))));
constexpr std::int64_t kLanes = sizeof(Lanes) / sizeof(float);

/// Resizes one row to `size` pixels: out[x, c] = sum over k of weights[x, k] in[first[x] + k, c]. Always
/// computes kLanes channels, which costs no more than one. So `in` and `out` need kLanes - 1 values of
/// padding.
void narrow_row(const float* in, const ResizeTaps& columns, std::int64_t channels, float* out) {
  const std::int64_t* const first = columns.first.data();
  const std::int64_t* const count = columns.count.data();
  const float* weights = columns.weights.data();
  const std::int64_t size = std::ssize(columns.first), maximum = columns.maximum;
  for (std::int64_t x = 0; x < size; ++x, weights += maximum, out += channels) {
    const float* from = in + first[x] * channels;
    Lanes sum{};
    for (std::int64_t k = 0; k < count[x]; ++k, from += channels) {
      Lanes pixel;
      std::memcpy(&pixel, from, sizeof pixel);
      sum += weights[k] * pixel;
    }
    std::memcpy(out, &sum, sizeof sum);
  }
}

/// Computes out[v] = sum over k < taps of weights[k] in[k * size + v], rounded to nearest, for v < size, in blocks whose
/// sums stay in the L1 cache.
void sum_rows(const float* in, const float* weights, std::int64_t taps, std::int64_t size,
              std::uint8_t* out) {
  constexpr std::int64_t kBlock = 32;
  for (std::int64_t first = 0; first < size; first += kBlock) {
    const std::int64_t count = std::min(kBlock, size - first);
    std::array<float, kBlock> sums;
    sums.fill(0.5f);  // rounds to nearest in the cast below
    const auto add = [&](float weight, const float* row, std::int64_t values) {
      for (std::int64_t v = 0; v < values; ++v) sums[static_cast<std::size_t>(v)] += weight * row[v];
    };
    // Weights are positive and sum to 1, so no sum is below 0.5. Rounding errors may raise it above 255.5.
    const auto put = [&](std::int64_t values) {
      for (std::int64_t v = 0; v < values; ++v)
        out[first + v] = static_cast<std::uint8_t>(std::min(sums[static_cast<std::size_t>(v)], 255.0f));
    };
    for (std::int64_t k = 0; k < taps; ++k) {
      const float* const row = in + k * size + first;
      if (count == kBlock)
        add(weights[k], row, kBlock);  // a loop without remainder
      else
        add(weights[k], row, count);
    }
    if (count == kBlock)
      put(kBlock);
    else
      put(count);
  }
}

}  // namespace

ResizeTaps::ResizeTaps(std::int64_t side, std::int64_t size, double scale) {
  const double reach = std::max(scale, 1.0);
  maximum = static_cast<std::int64_t>(2 * std::ceil(reach)) + 1;
  first.resize(static_cast<std::size_t>(size));
  count.resize(static_cast<std::size_t>(size));
  weights.resize(static_cast<std::size_t>(size * maximum));
  for (std::int64_t i = 0; i < size; ++i) {
    const double centre = (static_cast<double>(i) + 0.5 - static_cast<double>(size) / 2) * scale +
                          static_cast<double>(side) / 2;  // pixel j covers j … j + 1
    const auto begin = std::max<std::int64_t>(0, std::llround(std::ceil(centre - reach - 0.5)));
    const auto end = std::min<std::int64_t>(side, std::llround(std::floor(centre + reach - 0.5)) + 1);
    float* row = &weights[static_cast<std::size_t>(i * maximum)];
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

void SquareResizer::prepare(std::int64_t height, std::int64_t width) {
  if (height == height_ && width == width_) return;
  const double scale = static_cast<double>(std::min(height, width)) / static_cast<double>(size_);
  columns_ = ResizeTaps(width, size_, scale);
  rows_ = ResizeTaps(height, size_, scale);
  height_ = height;
  width_ = width;
}

void SquareResizer::run(const PixelView& image, std::uint8_t* out) {
  if (image.height == size_ && image.width == size_) {
    std::memcpy(out, image.pixels, static_cast<std::size_t>(size_ * size_ * image.channels));
    return;
  }
  prepare(image.height, image.width);
  apply(image, out);
}

void SquareResizer::run(const OriginalImage& image, std::int64_t height, std::int64_t width,
                        std::uint8_t* out) {
  if (image.height == height && image.width == width)
    std::ranges::copy(image.pixels, out);
  else
    run({image.pixels.data(), image.height, image.width, 3}, out);
}

void SquareResizer::stretch(const PixelView& image, std::int64_t height, std::int64_t width,
                            std::uint8_t* out) {
  const auto taps = [](std::int64_t from, std::int64_t to) {
    return ResizeTaps(from, to, static_cast<double>(from) / static_cast<double>(to));
  };
  columns_ = taps(image.width, width);
  rows_ = taps(image.height, height);
  height_ = width_ = 0;  // the weights are those of no square
  apply(image, out);
}

void SquareResizer::apply(const PixelView& image, std::uint8_t* out) {
  const std::int64_t channels = image.channels;
  check(1 <= channels && channels <= kLanes, "resizing: found {} channels, expected 1 to {}", channels,
        kLanes);
  const std::int64_t row_values = std::ssize(columns_.first) * channels;
  const std::int64_t top = rows_.first.front();
  const std::int64_t bottom = rows_.first.back() + rows_.count.back();
  // First resize the rows that contribute to the output, and only those: an image of 1 x 60000 pixels is
  // cheap.
  const std::int64_t in_values = image.width * channels;
  row_.resize(static_cast<std::size_t>(in_values + kLanes - 1));
  narrow_.resize(static_cast<std::size_t>((bottom - top) * row_values + kLanes - 1));
  for (std::int64_t y = top; y < bottom; ++y) {
    std::copy_n(image.pixels + y * in_values, in_values, row_.begin());
    narrow_row(row_.data(), columns_, channels, &narrow_[static_cast<std::size_t>((y - top) * row_values)]);
  }
  for (std::int64_t y = 0; y < std::ssize(rows_.first); ++y) {
    const auto i = static_cast<std::size_t>(y);
    sum_rows(&narrow_[static_cast<std::size_t>((rows_.first[i] - top) * row_values)],
             &rows_.weights[i * static_cast<std::size_t>(rows_.maximum)], rows_.count[i], row_values,
             out + y * row_values);
  }
}

void resize_to_square(const PixelView& image, std::int64_t size, std::uint8_t* out) {
  SquareResizer(size).run(image, out);
}

void check_image_side(int size) {
  constexpr int kMax = 4096;
  check_option(size >= 0 && size <= kMax, "ReadOptions::image_size",
               "found {}, expected 0 (as they are) to {} pixels", size, kMax);
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
    SquareResizer resizer(size);
    for (std::int64_t i = begin; i < end; ++i)
      resizer.run({in + i * height * width * channels, height, width, channels},
                  out + i * size * size * channels);
  });
  return {images, set.labels};
}

// Declared in dataset.h. Images of a source are resized to their shape in batches.
ImageSet select(const ImageSet& set, const std::vector<std::int32_t>& rows) {
  const auto count = std::ssize(rows);
  const Shape& all = set.shape();
  const DeviceContext device = set.source ? DeviceContext(Device::cpu()) : set.images.context();
  ImageSet selected{Tensor::empty({count, all[1], all[2], all[3]}, DType::u8, device),
                    Tensor::empty({count}, DType::i32, device)};
  selected.decode = set.decode;
  SquareResizer resizer(all[2]);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t from = rows[static_cast<std::size_t>(i)];
    if (set.source) {
      resizer.run(set.original(from, all[2]), all[1], all[2],
                  selected.images.rows(i, i + 1).view().as<std::uint8_t>());
      selected.labels.view().as<std::int32_t>()[i] = set.source->label(from);
      continue;
    }
    selected.images.rows(i, i + 1).copy_from(set.images.rows(from, from + 1));
    selected.labels.rows(i, i + 1).copy_from(set.labels.rows(from, from + 1));
    if (!set.files.empty()) selected.files.push_back(set.files[static_cast<std::size_t>(from)]);
  }
  return selected;
}

}  // namespace convoy::data

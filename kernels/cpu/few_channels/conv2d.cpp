// Convolution with few channels on the CPU: matrix products of windows with the filter, and with dy.
#include "convoy/kernels/cpu/few_channels/conv2d.h"

#include <algorithm>

#include "convoy/kernels/cpu/primitives/small_gemm.h"
#include "convoy/kernels/cpu/primitives/workspace.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::kernels::few_channels {
namespace {

using simd::kLanes, simd::load, simd::store, simd::Vec;

constexpr std::int64_t kBandWork = 1 << 18;  // multiplications of an item of a parallel loop: about 10 us
constexpr std::int64_t kMaxSums = 32;        // arrays of partial sums of a filter's gradient

/// Returns `channels` rounded up to whole vectors.
std::int64_t whole_vectors(std::int64_t channels) { return (channels + kLanes - 1) / kLanes * kLanes; }

constexpr int kMaxVectors = 2;  // width of a register block of sums: wider ones have fewer rows

/// Computes c [rows, columns] = start + a b. `columns` is a multiple of kLanes. Adds the terms of each sum in
/// the order of (j, k), whatever the sizes.
void multiply(std::int64_t rows, std::int64_t columns, simd::Terms terms, simd::LeftOperand a,
              simd::RightOperand b, simd::Sums c) {
  constexpr std::int64_t kWidth = kMaxVectors * kLanes;
  for (std::int64_t column = 0; column < columns; column += kWidth)
    simd::gemm_rows</*kPrefetches=*/false, kMaxVectors>(rows, std::min(kWidth, columns - column), terms, a,
                                                        {b.data + column, b.outer, b.inner},
                                                        c.from(0, column));
}

/// Some rows of one image.
struct Band {
  std::int64_t image, begin, end;
};

/// Splits the rows of all images into bands of nearly equal height, none of which crosses images.
struct Bands {
  std::int64_t rows, per_image, count;

  /// `work` is the number of multiplications of a row.
  Bands(const Images& images, std::int64_t work)
      : rows(images.h),
        per_image(std::clamp<std::int64_t>(images.h * work / kBandWork, 1, images.h)),
        count(images.n * per_image) {}

  std::int64_t max_rows() const { return (rows + per_image - 1) / per_image; }
  Band operator[](std::int64_t band) const {
    const std::int64_t part = band % per_image;
    return {band / per_image, rows * part / per_image, rows * (part + 1) / per_image};
  }
};

/// Rows of an image, with zeros at both ends of each row.
class PaddedRows {
 public:
  /// Returns the number of floats that a band of `rows` rows of outputs needs in `memory`.
  static std::int64_t size(const Images& images, std::int64_t rows, std::int64_t kh, std::int64_t padding) {
    return padding == 0 ? 0 : (rows + kh - 1) * (images.w + 2 * padding) * images.channels;
  }

  /// Copies the rows [begin, end) of an image to `memory`, or refers to them if there is no padding.
  PaddedRows(const float* image, const Images& images, std::int64_t begin, std::int64_t end,
             std::int64_t padding, float* memory)
      : first_(begin),
        stride_((images.w + 2 * padding) * images.channels),
        data_(image + begin * images.row()) {
    if (padding == 0) return;
    const std::int64_t border = padding * images.channels;
    for (std::int64_t row = begin; row < end; ++row) {
      float* const to = memory + (row - begin) * stride_;
      std::fill_n(to, border, 0.0F);
      std::copy_n(image + row * images.row(), images.row(), to + border);
      std::fill_n(to + border + images.row(), border, 0.0F);
    }
    data_ = memory;
  }

  std::int64_t stride() const { return stride_; }
  const float* operator[](std::int64_t row) const { return data_ + (row - first_) * stride_; }

 private:
  std::int64_t first_, stride_;
  const float* data_;
};

/// Writes the values of `pixels` pixels, which follow each other in `out`. value(pixel, channel) returns a vector, which
/// begins with this channel; lanes beyond the last channel do not matter.
template <class Value>
void put_pixels(std::int64_t pixels, std::int64_t channels, GradMode mode, float* out, const Value& value) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel)
    for (std::int64_t channel = 0; channel < channels; channel += kLanes) {
      const Vec found = value(pixel, channel);
      float* const to = out + pixel * channels + channel;
      if (mode == GradMode::overwrite && (pixels - pixel) * channels - channel >= kLanes) {
        store(to, found);  // lanes beyond the last channel belong to the next pixels, which overwrite them
      } else {
        for (std::int64_t k = 0; k < std::min<std::int64_t>(kLanes, channels - channel); ++k)
          to[k] = found[k] + (mode == GradMode::accumulate ? to[k] : 0.0F);
      }
    }
}

/// Returns the sum of what the pixels of dy that reach a row of x add to the pixel in a column, from a channel on. `windows` has
/// the products of these pixels with the filter: [ow, kw * i rounded up to vectors].
Vec sum_of_windows(const ConvSizes& s, const float* windows, std::int64_t column, std::int64_t channel) {
  Vec sum{};
  const std::int64_t padding = s.padding.width, columns = whole_vectors(s.kw * s.i);
  const std::int64_t first = std::max<std::int64_t>(0, column + padding - s.ow + 1);
  const std::int64_t last = std::min(s.kw, column + padding + 1);
  for (std::int64_t kx = first; kx < last; ++kx) {
    Vec term;
    load(windows + (column + padding - kx) * columns + kx * s.i + channel, term);
    sum += term;
  }
  return sum;
}

/// Adds the products of a band of dy with the windows of x to `sums` [kh, kw * i, o rounded up to vectors]. `padded` and
/// `gradients` are memory for the rows of x and for the pixels of dy.
void add_band(const ConvSizes& s, Band band, const float* x, const float* dy, float* padded, float* gradients,
              float* sums) {
  const Images inputs = s.inputs(), outputs = s.outputs();
  const std::int64_t padding = s.padding.height, depth = s.kw * s.i, columns = whole_vectors(s.o);
  const PaddedRows windows(x + band.image * inputs.image(), inputs,
                           std::max<std::int64_t>(0, band.begin - padding),
                           std::min(inputs.h, band.end - 1 + s.kh - padding), padding, padded);
  // Lanes beyond the last channel add up numbers of the next pixels, which are not used. The last band has no next pixels,
  // so its pixels are copied.
  const float* pixels = dy + band.image * outputs.image() + band.begin * outputs.row();
  std::int64_t stride = s.o;
  const std::int64_t behind = (outputs.n - band.image) * outputs.image() - band.end * outputs.row();
  if (behind < columns - s.o) {
    for (std::int64_t pixel = 0; pixel < (band.end - band.begin) * outputs.w; ++pixel)
      std::copy_n(pixels + pixel * s.o, s.o, gradients + pixel * columns);
    pixels = gradients;
    stride = columns;
  }
  for (std::int64_t ky = 0; ky < s.kh; ++ky) {
    // The rows of outputs whose windows have their row ky inside of the image.
    const std::int64_t begin = std::max(band.begin, padding - ky),
                       end = std::min(band.end, inputs.h + padding - ky);
    if (begin >= end) continue;
    float* const to = sums + ky * depth * columns;
    multiply(depth, columns, {end - begin, outputs.w},
             {windows[begin + ky - padding], 1, windows.stride(), inputs.channels},
             {pixels + (begin - band.begin) * outputs.w * stride, outputs.w * stride, stride},
             {.data = to, .row = columns, .start = to, .start_row = columns});
  }
}

}  // namespace

bool pays(const ConvSizes& s) {
  return s.groups == 1 && s.is_uniform() && s.stride == 1 && s.padding.height < std::min(s.kh, s.kw) &&
         s.kw >= 5 && s.i <= 8 && s.o <= 16;
}

// The windows of x times the filter [kh, kw * i, o rounded up to vectors].
void forward(CpuStream& stream, ConstView x, ConstView filter, ConstView bias, View y,
             Conv2dOptions options) {
  const ConvSizes s(x.shape, filter.shape, y.shape, options);
  const Images inputs = s.inputs(), outputs = s.outputs();
  const std::int64_t padding = s.padding.height, depth = s.kw * s.i;
  const std::int64_t taps = s.kh * depth, columns = whole_vectors(s.o);
  const Bands bands(outputs, outputs.w * s.o * taps);
  const std::int64_t padded_floats = PaddedRows::size(inputs, bands.max_rows(), s.kh, padding);
  const std::int64_t thread_floats = padded_floats + outputs.w * columns;
  Workspace filter_memory(stream), memory(stream);
  float* const filters = filter_memory.array<float>((taps + 1) * columns);
  float* const shifts = filters + taps * columns;
  std::fill_n(filters, (taps + 1) * columns, 0.0F);
  for (std::int64_t o = 0; o < s.o; ++o)
    for (std::int64_t tap = 0; tap < taps; ++tap)
      filters[tap * columns + o] = filter.as<float>()[o * taps + tap];
  if (bias.data != nullptr) std::copy_n(bias.as<float>(), s.o, shifts);
  float* const threads = memory.array<float>(stream.threads() * thread_floats);
  parallel_for_each(stream, bands.count, [&](std::int64_t thread, std::int64_t item) {
    const Band band = bands[item];
    float* const padded = threads + thread * thread_floats;
    const PaddedRows windows(x.as<float>() + band.image * inputs.image(), inputs,
                             std::max<std::int64_t>(0, band.begin - padding),
                             std::min(inputs.h, band.end - 1 + s.kh - padding), padding, padded);
    for (std::int64_t row = band.begin; row < band.end; ++row) {
      // The rows of the windows that lie inside of the image.
      const std::int64_t first = std::max<std::int64_t>(0, padding - row);
      const std::int64_t last = std::min(s.kh, inputs.h + padding - row);
      // Lanes beyond the last channel belong to the next pixels, which overwrite them. That cannot be if they are behind
      // the band, in memory of another thread or of nothing, or if a later block of columns of the GEMM writes them.
      float* const to = y.as<float>() + band.image * outputs.image() + row * outputs.row();
      const std::int64_t behind = columns - s.o;
      const bool is_copied =
          behind > (band.end - row - 1) * outputs.row() || (behind > 0 && columns > kMaxVectors * kLanes);
      float* const sums = is_copied ? padded + padded_floats : to;
      multiply(outputs.w, columns, {last - first, depth},
               {windows[row - padding + first], inputs.channels, windows.stride(), 1},
               {filters + first * depth * columns, depth * columns, columns},
               {.data = sums,
                .row = is_copied ? columns : s.o,
                .start = bias.data != nullptr ? shifts : nullptr,
                .start_row = 0,
                .relu = options.relu});
      if (is_copied)
        for (std::int64_t pixel = 0; pixel < outputs.w; ++pixel)
          std::copy_n(sums + pixel * columns, s.o, to + pixel * s.o);
    }
  });
}

// The transpose of forward(): each pixel of dy times the filter [kh, o, kw * i rounded up to vectors] is added to the pixels
// of its window.
void backward_data(CpuStream& stream, ConstView dy, ConstView filter, GradView dx, Conv2dOptions options) {
  const ConvSizes s(dx.shape, filter.shape, dy.shape, options);
  const Images inputs = s.inputs(), outputs = s.outputs();
  const std::int64_t padding = s.padding.height, depth = s.kw * s.i, columns = whole_vectors(depth);
  const Bands bands(inputs, outputs.w * s.o * s.kh * depth);
  const std::int64_t row_floats = outputs.w * columns;
  // A vector that begins in the last columns ends behind them.
  const std::int64_t thread_floats = bands.max_rows() * row_floats + kLanes;
  Workspace filter_memory(stream), memory(stream);
  float* const filters = filter_memory.array<float>(s.kh * s.o * columns);
  std::fill_n(filters, s.kh * s.o * columns, 0.0F);
  for (std::int64_t o = 0; o < s.o; ++o)
    for (std::int64_t ky = 0; ky < s.kh; ++ky)
      std::copy_n(filter.as<float>() + (o * s.kh + ky) * depth, depth, filters + (ky * s.o + o) * columns);
  float* const threads = memory.array<float>(stream.threads() * thread_floats);
  parallel_for_each(stream, bands.count, [&](std::int64_t thread, std::int64_t item) {
    const Band band = bands[item];
    float* const windows = threads + thread * thread_floats;
    for (std::int64_t row = band.begin; row < band.end; ++row) {
      // The rows of the windows that begin in a row of dy.
      const std::int64_t first = std::max<std::int64_t>(0, row + padding - outputs.h + 1);
      const std::int64_t last = std::min(s.kh, row + padding + 1);
      multiply(outputs.w, columns, {last - first, s.o},
               {dy.as<float>() + band.image * outputs.image() + (row + padding - first) * outputs.row(), s.o,
                -outputs.row(), 1},
               {filters + first * s.o * columns, s.o * columns, columns},
               {.data = windows + (row - band.begin) * row_floats, .row = columns});
    }
    for (std::int64_t row = band.begin; row < band.end; ++row)
      put_pixels(inputs.w, inputs.channels, dx.mode,
                 dx.as<float>() + band.image * inputs.image() + row * inputs.row(),
                 [&](std::int64_t column, std::int64_t channel) {
                   return sum_of_windows(s, windows + (row - band.begin) * row_floats, column, channel);
                 });
  });
}

// Adds up the outputs in at most kMaxSums arrays [kh, kw * i, o rounded up to vectors], and those to the first one.
void backward_filter(CpuStream& stream, ConstView dy, ConstView x, GradView dfilter, Conv2dOptions options) {
  const ConvSizes s(x.shape, dfilter.shape, dy.shape, options);
  const Images outputs = s.outputs();
  const std::int64_t taps = s.kh * s.kw * s.i, columns = whole_vectors(s.o), size = taps * columns;
  const std::int64_t work = outputs.w * s.o * taps;  // of a row, for any width of vectors
  const Bands bands(outputs, work);
  const std::int64_t arrays =
      std::clamp<std::int64_t>(outputs.n * outputs.h * work / kBandWork, 1, std::min(bands.count, kMaxSums));
  const std::int64_t padded_floats = PaddedRows::size(s.inputs(), bands.max_rows(), s.kh, s.padding.height);
  const std::int64_t thread_floats = padded_floats + bands.max_rows() * outputs.w * columns;
  const std::int64_t floats = arrays * size + stream.threads() * thread_floats;
  Workspace memory(stream);
  float* const sums = memory.array<float>(floats);
  std::fill_n(sums, floats, 0.0F);  // also the channels that fill vectors
  parallel_for_each(stream, arrays, [&](std::int64_t thread, std::int64_t array) {
    float* const padded = sums + arrays * size + thread * thread_floats;
    for (std::int64_t item = bands.count * array / arrays; item < bands.count * (array + 1) / arrays; ++item)
      add_band(s, bands[item], x.as<float>(), dy.as<float>(), padded, padded + padded_floats,
               sums + array * size);
  });
  for (std::int64_t array = 1; array < arrays; ++array)
    for (std::int64_t k = 0; k < size; ++k) sums[k] += sums[array * size + k];
  for (std::int64_t o = 0; o < s.o; ++o)
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      float& to = dfilter.as<float>()[o * taps + tap];
      to = sums[tap * columns + o] + (dfilter.mode == GradMode::accumulate ? to : 0.0F);
    }
}

}  // namespace convoy::kernels::few_channels

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

/// The outputs: products of the windows of x with the filter.
struct Outputs {
  const float* x;
  Images inputs;
  const float* filters;  // [kh, kw * i, o rounded up to vectors]
  const float* bias;     // [o rounded up to vectors], or null
  std::int64_t kh, kw, padding;
  bool relu;
  float* y;
  Images outputs;

  void run(CpuStream& stream) const;
};

void Outputs::run(CpuStream& stream) const {
  const std::int64_t columns = whole_vectors(outputs.channels), depth = kw * inputs.channels;
  const Bands bands(outputs, outputs.w * outputs.channels * kh * depth);
  const std::int64_t padded_floats = PaddedRows::size(inputs, bands.max_rows(), kh, padding);
  const std::int64_t thread_floats = padded_floats + outputs.w * columns;
  Workspace memory(stream);
  float* const threads = memory.array<float>(stream.threads() * thread_floats);
  parallel_for_each(stream, bands.count, [&](std::int64_t thread, std::int64_t item) {
    const Band band = bands[item];
    float* const padded = threads + thread * thread_floats;
    const PaddedRows windows(x + band.image * inputs.image(), inputs,
                             std::max<std::int64_t>(0, band.begin - padding),
                             std::min(inputs.h, band.end - 1 + kh - padding), padding, padded);
    for (std::int64_t row = band.begin; row < band.end; ++row) {
      // The rows of the windows that lie inside of the image.
      const std::int64_t first = std::max<std::int64_t>(0, padding - row);
      const std::int64_t last = std::min(kh, inputs.h + padding - row);
      // Lanes beyond the last channel belong to the next pixels, which overwrite them. That cannot be if they are behind
      // the band, in memory of another thread or of nothing, or if a later block of columns of the GEMM writes them.
      float* const to = y + band.image * outputs.image() + row * outputs.row();
      const std::int64_t behind = columns - outputs.channels;
      const bool is_copied =
          behind > (band.end - row - 1) * outputs.row() || (behind > 0 && columns > kMaxVectors * kLanes);
      float* const sums = is_copied ? padded + padded_floats : to;
      const std::int64_t stride = is_copied ? columns : outputs.channels;
      multiply(outputs.w, columns, {last - first, depth},
               {windows[row - padding + first], inputs.channels, windows.stride(), 1},
               {filters + first * depth * columns, depth * columns, columns},
               {.data = sums, .row = stride, .start = bias, .start_row = 0, .relu = relu});
      if (is_copied)
        for (std::int64_t pixel = 0; pixel < outputs.w; ++pixel)
          std::copy_n(sums + pixel * columns, outputs.channels, to + pixel * outputs.channels);
    }
  });
}

/// The gradient of x, the transpose of Outputs: each pixel of dy times the filter is added to the pixels of its window.
struct InputGradient {
  const float* dy;
  Images outputs;
  const float* filters;  // [kh, o, kw * i rounded up to vectors]
  std::int64_t kh, kw, padding;
  GradView dx;
  Images inputs;

  void run(CpuStream& stream) const;

 private:
  std::int64_t columns() const { return whole_vectors(kw * inputs.channels); }
  Vec sum_of_windows(const float* row, std::int64_t column, std::int64_t channel) const;
};

/// `row` has the windows of all pixels of dy that reach a row of x: [outputs.w, kw * i]. Returns what they add to the
/// pixel in a column.
Vec InputGradient::sum_of_windows(const float* row, std::int64_t column, std::int64_t channel) const {
  Vec sum{};
  const std::int64_t first = std::max<std::int64_t>(0, column + padding - outputs.w + 1);
  const std::int64_t last = std::min(kw, column + padding + 1);
  for (std::int64_t kx = first; kx < last; ++kx) {
    Vec term;
    load(row + (column + padding - kx) * columns() + kx * inputs.channels + channel, term);
    sum += term;
  }
  return sum;
}

void InputGradient::run(CpuStream& stream) const {
  const std::int64_t o = outputs.channels;
  const Bands bands(inputs, outputs.w * o * kh * kw * inputs.channels);
  const std::int64_t row_floats = outputs.w * columns();
  // A vector that begins in the last columns ends behind them.
  const std::int64_t thread_floats = bands.max_rows() * row_floats + kLanes;
  Workspace memory(stream);
  float* const threads = memory.array<float>(stream.threads() * thread_floats);
  parallel_for_each(stream, bands.count, [&](std::int64_t thread, std::int64_t item) {
    const Band band = bands[item];
    float* const windows = threads + thread * thread_floats;
    for (std::int64_t row = band.begin; row < band.end; ++row) {
      // The rows of the windows that begin in a row of dy.
      const std::int64_t first = std::max<std::int64_t>(0, row + padding - outputs.h + 1);
      const std::int64_t last = std::min(kh, row + padding + 1);
      multiply(
          outputs.w, columns(), {last - first, o},
          {dy + band.image * outputs.image() + (row + padding - first) * outputs.row(), o, -outputs.row(), 1},
          {filters + first * o * columns(), o * columns(), columns()},
          {.data = windows + (row - band.begin) * row_floats, .row = columns()});
    }
    for (std::int64_t row = band.begin; row < band.end; ++row)
      put_pixels(inputs.w, inputs.channels, dx.mode,
                 dx.as<float>() + band.image * inputs.image() + row * inputs.row(),
                 [&](std::int64_t column, std::int64_t channel) {
                   return sum_of_windows(windows + (row - band.begin) * row_floats, column, channel);
                 });
  });
}

/// The gradient of a filter: sums over all outputs, in arrays [kh, kw * i, o rounded up to vectors].
struct FilterGradient {
  const float* x;
  Images inputs;
  const float* dy;
  Images outputs;
  std::int64_t kh, kw, padding;

  std::int64_t depth() const { return kw * inputs.channels; }
  std::int64_t columns() const { return whole_vectors(outputs.channels); }
  std::int64_t size() const { return kh * depth() * columns(); }

  /// Adds up the outputs in at most kMaxSums arrays, and those to the first one. Returns it.
  const float* run(CpuStream& stream, Workspace& memory) const;

 private:
  std::int64_t padded_floats(std::int64_t rows) const { return PaddedRows::size(inputs, rows, kh, padding); }
  void add_band(Band band, float* padded, float* gradients, float* sums) const;
};

void FilterGradient::add_band(Band band, float* padded, float* gradients, float* sums) const {
  const PaddedRows windows(x + band.image * inputs.image(), inputs,
                           std::max<std::int64_t>(0, band.begin - padding),
                           std::min(inputs.h, band.end - 1 + kh - padding), padding, padded);
  // Lanes beyond the last channel add up numbers of the next pixels, which are not used. The last band has no next pixels,
  // so its pixels are copied.
  const float* pixels = dy + band.image * outputs.image() + band.begin * outputs.row();
  std::int64_t stride = outputs.channels;
  const std::int64_t behind = (outputs.n - band.image) * outputs.image() - band.end * outputs.row();
  if (behind < columns() - outputs.channels) {
    for (std::int64_t pixel = 0; pixel < (band.end - band.begin) * outputs.w; ++pixel)
      std::copy_n(pixels + pixel * outputs.channels, outputs.channels, gradients + pixel * columns());
    pixels = gradients;
    stride = columns();
  }
  for (std::int64_t ky = 0; ky < kh; ++ky) {
    // The rows of outputs whose windows have their row ky inside of the image.
    const std::int64_t begin = std::max(band.begin, padding - ky),
                       end = std::min(band.end, inputs.h + padding - ky);
    if (begin >= end) continue;
    float* const to = sums + ky * depth() * columns();
    multiply(depth(), columns(), {end - begin, outputs.w},
             {windows[begin + ky - padding], 1, windows.stride(), inputs.channels},
             {pixels + (begin - band.begin) * outputs.w * stride, outputs.w * stride, stride},
             {.data = to, .row = columns(), .start = to, .start_row = columns()});
  }
}

const float* FilterGradient::run(CpuStream& stream, Workspace& memory) const {
  const std::int64_t work =
      outputs.w * outputs.channels * kh * depth();  // of a row, for any width of vectors
  const Bands bands(outputs, work);
  const std::int64_t arrays =
      std::clamp<std::int64_t>(outputs.n * outputs.h * work / kBandWork, 1, std::min(bands.count, kMaxSums));
  const std::int64_t gradients = bands.max_rows() * outputs.w * columns();
  const std::int64_t thread_floats = padded_floats(bands.max_rows()) + gradients;
  float* const sums = memory.array<float>(arrays * size() + stream.threads() * thread_floats);
  std::fill_n(sums, arrays * size() + stream.threads() * thread_floats,
              0.0F);  // also the channels that fill vectors
  parallel_for_each(stream, arrays, [&](std::int64_t thread, std::int64_t array) {
    float* const padded = sums + arrays * size() + thread * thread_floats;
    for (std::int64_t item = bands.count * array / arrays; item < bands.count * (array + 1) / arrays; ++item)
      add_band(bands[item], padded, padded + padded_floats(bands.max_rows()), sums + array * size());
  });
  for (std::int64_t array = 1; array < arrays; ++array)
    for (std::int64_t k = 0; k < size(); ++k) sums[k] += sums[array * size() + k];
  return sums;
}

}  // namespace

bool pays(const ConvSizes& s) {
  return s.groups == 1 && s.is_uniform() && s.stride == 1 && s.padding.height < std::min(s.kh, s.kw) &&
         s.kw >= 5 && s.i <= 8 && s.o <= 16;
}

void forward(CpuStream& stream, ConstView x, ConstView filter, ConstView bias, View y,
             Conv2dOptions options) {
  const ConvSizes s(x.shape, filter.shape, y.shape, options);
  const std::int64_t taps = s.kh * s.kw * s.i, columns = whole_vectors(s.o);
  Workspace memory(stream);
  float* const filters = memory.array<float>((taps + 1) * columns);
  float* const shifts = filters + taps * columns;
  std::fill_n(filters, (taps + 1) * columns, 0.0F);
  for (std::int64_t o = 0; o < s.o; ++o)
    for (std::int64_t tap = 0; tap < taps; ++tap)
      filters[tap * columns + o] = filter.as<float>()[o * taps + tap];
  if (bias.data != nullptr) std::copy_n(bias.as<float>(), s.o, shifts);
  Outputs{.x = x.as<float>(),
          .inputs = s.inputs(),
          .filters = filters,
          .bias = bias.data != nullptr ? shifts : nullptr,
          .kh = s.kh,
          .kw = s.kw,
          .padding = s.padding.height,
          .relu = options.relu,
          .y = y.as<float>(),
          .outputs = s.outputs()}
      .run(stream);
}

void backward_data(CpuStream& stream, ConstView dy, ConstView filter, GradView dx, Conv2dOptions options) {
  const ConvSizes s(dx.shape, filter.shape, dy.shape, options);
  const std::int64_t depth = s.kw * s.i, columns = whole_vectors(depth);
  Workspace memory(stream);
  float* const filters = memory.array<float>(s.kh * s.o * columns);
  std::fill_n(filters, s.kh * s.o * columns, 0.0F);
  for (std::int64_t o = 0; o < s.o; ++o)
    for (std::int64_t ky = 0; ky < s.kh; ++ky)
      std::copy_n(filter.as<float>() + (o * s.kh + ky) * depth, depth, filters + (ky * s.o + o) * columns);
  InputGradient{.dy = dy.as<float>(),
                .outputs = s.outputs(),
                .filters = filters,
                .kh = s.kh,
                .kw = s.kw,
                .padding = s.padding.height,
                .dx = dx,
                .inputs = s.inputs()}
      .run(stream);
}

void backward_filter(CpuStream& stream, ConstView dy, ConstView x, GradView dfilter, Conv2dOptions options) {
  const ConvSizes s(x.shape, dfilter.shape, dy.shape, options);
  Workspace memory(stream);
  const FilterGradient gradient{.x = x.as<float>(),
                                .inputs = s.inputs(),
                                .dy = dy.as<float>(),
                                .outputs = s.outputs(),
                                .kh = s.kh,
                                .kw = s.kw,
                                .padding = s.padding.height};
  const float* const sums = gradient.run(stream, memory);
  const std::int64_t taps = s.kh * s.kw * s.i, columns = gradient.columns();
  for (std::int64_t o = 0; o < s.o; ++o)
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      float& to = dfilter.as<float>()[o * taps + tap];
      to = sums[tap * columns + o] + (dfilter.mode == GradMode::accumulate ? to : 0.0F);
    }
}

}  // namespace convoy::kernels::few_channels

// Reference convolution on the GPU (kernels/cpu/conv2d_reference.cpp has the formula). Each thread sums its
// own outputs in a fixed order, without shared memory; threads that read the same pixels or taps share the
// caches. Used for f64 and in builds without cuDNN, and as the reference that faster algorithms are compared
// with.
#include <algorithm>

#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/cuda/primitives/windows.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels {
namespace {

using cuda::compute_t;
using cuda::load_pack;
using cuda::narrow;
using cuda::Pack;
using cuda::PackCoordinates;
using cuda::PackGrid;
using cuda::Range;
using cuda::store_pack;
using cuda::widen;
using cuda::WindowAxis;

constexpr int kConvBlock = 128;
/// Channels of y that a thread of forward computes per load of x. With several groups it is 1: the channels read
/// different channels of x. Likewise, a thread of the gradients then has no packs.
constexpr int kOutputs = 4;

/// One axis of the windows: window o has `kernel` pixels at distances of `dilation`.
class DilatedAxis : public WindowAxis {
 public:
  DilatedAxis(std::int64_t pixels, std::int64_t windows, std::int64_t kernel, int stride, int padding,
              int dilation)
      : WindowAxis(pixels, windows, (kernel - 1) * dilation + 1, stride, padding),
        kernel_(static_cast<int>(kernel)),
        dilation_(dilation),
        by_dilation_(dilation) {}

  __device__ int kernel() const { return kernel_; }
  __device__ int dilation() const { return dilation_; }
  /// Returns the numbers of the pixels of a window that are inside the image.
  __device__ Range taps_of(int window) const {
    const Range pixels = pixels_of(window);
    const int first = start(window) - dilation_ + 1;  // rounds up
    return {.begin = by_dilation_.quotient(pixels.begin - first),
            .end = by_dilation_.quotient(std::max(pixels.end - first, 0))};
  }
  /// Returns the number of a window's pixel at this distance from its first one; -1 if the window steps over it.
  __device__ int tap_at(int distance) const {
    const int tap = by_dilation_.quotient(distance);
    return tap * dilation_ == distance ? tap : -1;
  }

 private:
  int kernel_, dilation_;
  cuda::Divisor by_dilation_;
};

/// The sizes of a convolution in the form that the kernels need.
struct ConvWindows {
  DilatedAxis rows, columns;
  int inputs, outputs;              // numbers of channels
  int group_inputs, group_outputs;  // of one group

  explicit ConvWindows(const ConvSizes& c)
      : rows(c.h, c.oh, c.kh, c.stride.height, c.padding.height, c.dilation.height),
        columns(c.w, c.ow, c.kw, c.stride.width, c.padding.width, c.dilation.width),
        inputs(static_cast<int>(c.i)),
        outputs(static_cast<int>(c.o)),
        group_inputs(static_cast<int>(c.group_inputs())),
        group_outputs(static_cast<int>(c.group_outputs())) {}
  __device__ int filter_size() const { return rows.kernel() * columns.kernel() * group_inputs; }
};

/// Each thread computes kOutputs channels of one pixel of y. With one group and no dilation, the terms of all kx and
/// i are contiguous in memory, both in x and in a filter, else those of all i. They are loaded kWidth at a time.
template <class T, int kWidth, int kChannels>
__global__ void __launch_bounds__(kConvBlock)
    forward_kernel(PackGrid grid, ConvWindows windows, bool relu, const T* x, const T* filter, const T* bias,
                   T* y) {
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size()) return;
  const PackCoordinates at = grid.coordinates(index);
  const Range ys = windows.rows.taps_of(at.y);
  const Range xs = windows.columns.taps_of(at.x);
  const bool is_grouped = windows.group_inputs != windows.inputs;
  const bool is_contiguous = !is_grouped && windows.columns.dilation() == 1;
  const int columns = is_contiguous ? xs.end - xs.begin : 1;  // of contiguous terms
  const int run = columns * windows.group_inputs;
  const int first = is_grouped ? at.channel / windows.group_outputs * windows.group_inputs : 0;

  const T* taps[kChannels];
  compute_t<T> sum[kChannels];
  for (int o = 0; o < kChannels; ++o) {
    const int channel =
        std::min(at.channel + o, windows.outputs - 1);  // channels past the last are not stored
    taps[o] = filter + std::int64_t{channel} * windows.filter_size();
    sum[o] = bias != nullptr ? widen(bias[channel]) : compute_t<T>{0};
  }
  for (int ky = ys.begin; ky < ys.end; ++ky)
    for (int kx = xs.begin; kx < xs.end; kx += columns) {
      const int row = windows.rows.start(at.y) + ky * windows.rows.dilation();
      const int column = windows.columns.start(at.x) + kx * windows.columns.dilation();
      const T* const in =
          x +
          ((at.image * windows.rows.pixels() + row) * windows.columns.pixels() + column) * windows.inputs +
          first;
      const int tap = (ky * windows.columns.kernel() + kx) * windows.group_inputs;
      for (int e = 0; e < run; e += kWidth) {
        const Pack<T, kWidth> pixels = load_pack<kWidth>(in + e);
        for (int o = 0; o < kChannels; ++o) {
          const Pack<T, kWidth> weights = load_pack<kWidth>(taps[o] + tap + e);
          for (int i = 0; i < kWidth; ++i) sum[o] += widen(pixels.values[i]) * widen(weights.values[i]);
        }
      }
    }
  for (int o = 0; o < kChannels && at.channel + o < windows.outputs; ++o) {
    const compute_t<T> value = relu && compute_t<T>{0} > sum[o] ? compute_t<T>{0} : sum[o];  // NaN propagates
    y[at.pixel * windows.outputs + at.channel + o] = narrow<T>(value);
  }
}

/// Each thread computes one pack of channels of one pixel of dx: the sum over all windows that cover the
/// pixel, and over all output channels of the group, of dy times the tap at the pixel.
template <class T, int kWidth>
__global__ void __launch_bounds__(kConvBlock)
    backward_data_kernel(PackGrid grid, ConvWindows windows, GradMode mode, const T* dy, const T* filter,
                         T* dx) {
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size()) return;
  const PackCoordinates at = grid.coordinates(index);
  const Range ys = windows.rows.windows_over(at.y);
  const Range xs = windows.columns.windows_over(at.x);
  const int group = at.channel / windows.group_inputs, first = group * windows.group_outputs;

  compute_t<T> sum[kWidth] = {};
  for (int oy = ys.begin; oy < ys.end; ++oy)
    for (int ox = xs.begin; ox < xs.end; ++ox) {
      const int down = at.y - windows.rows.start(oy), right = at.x - windows.columns.start(ox);
      const int ky = windows.rows.tap_at(down), kx = windows.columns.tap_at(right);
      if (ky < 0 || kx < 0) continue;
      const T* const slopes =
          dy + ((at.image * windows.rows.windows() + oy) * windows.columns.windows() + ox) * windows.outputs +
          first;
      const T* tap = filter + std::int64_t{first} * windows.filter_size() +
                     (ky * windows.columns.kernel() + kx) * windows.group_inputs + at.channel -
                     group * windows.group_inputs;
      for (int o = 0; o < windows.group_outputs; ++o, tap += windows.filter_size()) {
        const compute_t<T> slope = widen(slopes[o]);
        const Pack<T, kWidth> weights = load_pack<kWidth>(tap);
        for (int i = 0; i < kWidth; ++i) sum[i] += slope * widen(weights.values[i]);
      }
    }

  T* const to = dx + at.pixel * windows.inputs + at.channel;
  Pack<T, kWidth> result{};
  if (mode == GradMode::accumulate) result = load_pack<kWidth>(to);
  for (int i = 0; i < kWidth; ++i)
    result.values[i] = narrow<T>(mode == GradMode::accumulate ? widen(result.values[i]) + sum[i] : sum[i]);
  store_pack(to, result);
}

// The gradient of a filter has few elements, and each is a sum over all pixels of dy. It is computed in two
// steps: sums over chunks of the rows of dy, by many threads, then the sum of these.

constexpr std::int64_t kChunkThreads =
    65536;  // target number of threads of the first step: enough for a large GPU
constexpr std::int64_t kMaxChunks = 256;  // maximum number of partial filters in memory

/// Side of the square of (o, i) that a thread of the first step sums. It is 4 for half precision too: 8 x 8
/// sums would take too many registers.
template <class T>
inline constexpr int kSquare = std::min(4, cuda::kVectorWidth<T>);

/// The threads of the first step. Packs of i vary fastest, then taps, then packs of o, then chunks.
struct ChunkGrid {
  cuda::Divisor input_packs, taps, output_packs, kernel_columns, window_rows;
  std::int64_t rows;  // N oH
  std::int64_t chunks;
  std::int64_t size;

  ChunkGrid(const ConvSizes& c, int output_width, int input_width)
      : input_packs(c.group_inputs() / input_width),
        taps(c.kh * c.kw),
        output_packs(c.o / output_width),
        kernel_columns(c.kw),
        window_rows(c.oh),
        rows(c.n * c.oh) {
    const std::int64_t squares = c.group_inputs() / input_width * c.kh * c.kw * (c.o / output_width);
    chunks = std::min({rows, kMaxChunks, (kChunkThreads + squares - 1) / squares});
    size = chunks * squares;
  }
};

/// Writes partial [chunk][o][ky][kx][i]. Each thread computes a square of (o, i) at one tap; i is a channel of the
/// group of o.
template <class T, int kOutputWidth, int kInputWidth>
__global__ void __launch_bounds__(kConvBlock)
    filter_chunks_kernel(ChunkGrid grid, ConvWindows windows, const T* dy, const T* x,
                         compute_t<T>* partial) {
  const bool dy_is_aligned = cuda::is_aligned(dy), x_is_aligned = cuda::is_aligned(x);
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size) return;
  const std::int64_t tap_index = grid.input_packs.quotient(index);
  const std::int64_t output_index = grid.taps.quotient(tap_index);
  const std::int64_t chunk = grid.output_packs.quotient(output_index);
  const int i = static_cast<int>(index - tap_index * grid.input_packs.value()) * kInputWidth;
  const int tap = static_cast<int>(tap_index - output_index * grid.taps.value());
  const int o = static_cast<int>(output_index - chunk * grid.output_packs.value()) * kOutputWidth;
  const int channel = o / windows.group_outputs * windows.group_inputs + i;
  const int row_of_tap = grid.kernel_columns.quotient(tap);
  const int down = row_of_tap * windows.rows.dilation();
  const int right = (tap - row_of_tap * windows.columns.kernel()) * windows.columns.dilation();

  // Only windows that have this tap inside the image contribute.
  const Range xs = windows.columns.windows_with(right);
  compute_t<T> sum[kOutputWidth][kInputWidth] = {};
  for (std::int64_t row = grid.rows * chunk / grid.chunks; row < grid.rows * (chunk + 1) / grid.chunks;
       ++row) {
    const std::int64_t image = grid.window_rows.quotient(row);
    const int y = windows.rows.start(static_cast<int>(row - image * windows.rows.windows())) + down;
    if (y < 0 || y >= windows.rows.pixels()) continue;
    const T* const slopes = dy + row * windows.columns.windows() * windows.outputs + o;
    const std::int64_t x_row = image * windows.rows.pixels() + y;
    const T* const pixels = x + x_row * windows.columns.pixels() * windows.inputs + channel;
    for (int ox = xs.begin; ox < xs.end; ++ox) {
      const auto slope = load_pack<kOutputWidth>(slopes + std::int64_t{ox} * windows.outputs, dy_is_aligned);
      const auto pixel = load_pack<kInputWidth>(
          pixels + std::int64_t{windows.columns.start(ox) + right} * windows.inputs, x_is_aligned);
      for (int a = 0; a < kOutputWidth; ++a)
        for (int b = 0; b < kInputWidth; ++b) sum[a][b] += widen(slope.values[a]) * widen(pixel.values[b]);
    }
  }
  for (int a = 0; a < kOutputWidth; ++a) {
    compute_t<T>* const to =
        partial + (chunk * windows.outputs + o + a) * windows.filter_size() + tap * windows.group_inputs + i;
    for (int b = 0; b < kInputWidth; ++b) to[b] = sum[a][b];
  }
}

/// Computes dfilter, the sum of the chunks in f64, or adds it to dfilter. One element per thread.
template <class T>
__global__ void __launch_bounds__(kConvBlock)
    filter_sum_kernel(std::int64_t size, std::int64_t chunks, GradMode mode, const compute_t<T>* partial,
                      T* dfilter) {
  const std::int64_t index = cuda::thread_index();
  if (index >= size) return;
  double sum = mode == GradMode::accumulate ? static_cast<double>(widen(dfilter[index])) : 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
    sum += static_cast<double>(partial[chunk * size + index]);
  dfilter[index] = narrow<T>(static_cast<compute_t<T>>(sum));
}

template <class T, int kOutputWidth, int kInputWidth>
void launch_filter_chunks(CudaStream& stream, const ConvSizes& c, ConstView dy, ConstView x,
                          GradView dfilter) {
  const ChunkGrid grid(c, kOutputWidth, kInputWidth);
  const std::int64_t size = dfilter.numel();
  const cuda::Scratch partial(stream, static_cast<std::size_t>(grid.chunks * size) * sizeof(compute_t<T>));
  if (grid.size > 0)
    launch(stream, blocks_for(grid.size, kConvBlock), kConvBlock, 0,
           filter_chunks_kernel<T, kOutputWidth, kInputWidth>, grid, ConvWindows(c), dy.as<T>(), x.as<T>(),
           partial.as<compute_t<T>>());
  launch(stream, blocks_for(size, kConvBlock), kConvBlock, 0, filter_sum_kernel<T>, size, grid.chunks,
         dfilter.mode, partial.as<compute_t<T>>(), dfilter.as<T>());
}

}  // namespace

void conv2d_forward_reference(CudaStream& stream, ConstView x, ConstView filter, ConstView bias, View y,
                              Conv2dOptions options) {
  if (y.numel() == 0) return;
  const ConvSizes c(x.shape, filter.shape, y.shape, options);
  dispatch(cuda::kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto run = [&](auto kernel, int channels) {
      const PackGrid grid(y.shape, channels);
      launch(stream, blocks_for(grid.size(), kConvBlock), kConvBlock, 0, kernel, grid, ConvWindows(c),
             options.relu, x.as<T>(), filter.as<T>(), bias.as<T>(), y.as<T>());
    };
    if (c.groups > 1) return run(forward_kernel<T, 1, 1>, 1);
    cuda::dispatch_width<T>(cuda::comes_in_packs<T>(c.i, x.data, filter.data), [&](auto width) {
      run(forward_kernel<T, decltype(width)::value, kOutputs>, kOutputs);
    });
  });
}

void conv2d_backward_data_reference(CudaStream& stream, ConstView dy, ConstView filter, GradView dx,
                                    Conv2dOptions options) {
  if (!dx.wanted() || dx.numel() == 0) return;
  const ConvSizes c(dx.shape, filter.shape, dy.shape, options);
  dispatch(cuda::kGpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool in_packs = c.groups == 1 && cuda::comes_in_packs<T>(c.i, filter.data, dx.data);
    cuda::dispatch_width<T>(in_packs, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const PackGrid grid(dx.shape, kWidth);
      launch(stream, blocks_for(grid.size(), kConvBlock), kConvBlock, 0, backward_data_kernel<T, kWidth>,
             grid, ConvWindows(c), dx.mode, dy.as<T>(), filter.as<T>(), dx.as<T>());
    });
  });
}

void conv2d_backward_filter_reference(CudaStream& stream, ConstView dy, ConstView x, GradView dfilter,
                                      Conv2dOptions options) {
  if (!dfilter.wanted() || dfilter.numel() == 0) return;
  const ConvSizes c(x.shape, dfilter.shape, dy.shape, options);
  dispatch(cuda::kGpuTypes, dfilter.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool output_packs = c.groups == 1 && c.o % kSquare<T> == 0;
    const bool input_packs = c.groups == 1 && c.i % kSquare<T> == 0;
    const auto run =
        output_packs ? (input_packs ? launch_filter_chunks<T, kSquare<T>, kSquare<T>>
                                    : launch_filter_chunks<T, kSquare<T>, 1>)
                     : (input_packs ? launch_filter_chunks<T, 1, kSquare<T>> : launch_filter_chunks<T, 1, 1>);
    run(stream, c, dy, x, dfilter);
  });
}

}  // namespace convoy::kernels

// kernels/pool2d.h on the GPU: one thread computes one pack of channels of one pixel of the result. In the
// forward direction that is a pixel of y, in the backward direction a pixel of dx. A gradient is gathered
// from the windows that cover the pixel, in row order, without atomics. The order is that of the CPU, so
// every run gives the same bits. Overlapping windows are read again from the caches. Where windows do not overlap,
// the gradient of max pooling has a thread for each window, which reads it once. Adaptive windows, and averages
// with several divisors, have the general form of a window (PoolAxis), and no packs.
#include "convoy/kernels/pool2d.h"

#include <algorithm>
#include <bit>

#include "convoy/kernels/cuda/primitives/divisor.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/cuda/primitives/windows.h"
#include "convoy/kernels/shared/pool2d_geometry.h"

namespace convoy::kernels {
namespace {

using cuda::compute_t;
using cuda::is_aligned;
using cuda::load_pack;
using cuda::narrow;
using cuda::Pack;
using cuda::PackCoordinates;
using cuda::PackGrid;
using cuda::store_pack;
using cuda::widen;
using cuda::WindowAxis;

constexpr int kPoolBlock = 256;

/// The windows of one pooling. Axis is WindowAxis, for which all averages have one divisor, or PoolAxis.
template <class Axis>
struct PoolWindows {
  static constexpr bool kIsUniform = std::is_same_v<Axis, WindowAxis>;
  Axis rows, columns;
  int channels;

  /// Returns the divisor of the average of a window.
  __device__ int divisor(int y, int x) const {
    if constexpr (kIsUniform)
      return rows.kernel() * columns.kernel();
    else
      return rows.divisor(y) * columns.divisor(x);
  }
};

/// Calls f(tap, pack of x) for each pixel of the window of output `at`, in row order. `tap` is the index of the
/// pixel in the window, ky kW + kx.
template <int kWidth, class Axis, class T, class F>
__device__ void for_each_pixel(const PoolWindows<Axis>& windows, const PackCoordinates& at, const T* x, F f) {
  const auto ys = windows.rows.pixels_of(at.y);
  const auto xs = windows.columns.pixels_of(at.x);
  const std::int64_t width = windows.columns.pixels();
  const T* const image = x + at.image * windows.rows.pixels() * width * windows.channels + at.channel;
  const int top = windows.rows.start(at.y), left = windows.columns.start(at.x);
  for (int y = ys.begin; y < ys.end; ++y)
    for (int column = xs.begin; column < xs.end; ++column)
      f((y - top) * windows.columns.kernel() + column - left,
        load_pack<kWidth>(image + (y * width + column) * windows.channels));
}

/// Calls f(offset, tap, y, x) for each window (y, x) that covers pixel `at` of the image, in row order. `offset`
/// is the index of the pack in the pooled arrays, and `tap` the index of the pixel in the window.
template <class Axis, class F>
__device__ void for_each_window(const PoolWindows<Axis>& windows, const PackCoordinates& at, F f) {
  const auto ys = windows.rows.windows_over(at.y);
  const auto xs = windows.columns.windows_over(at.x);
  for (int y = ys.begin; y < ys.end; ++y) {
    const std::int64_t row = (at.image * windows.rows.windows() + y) * windows.columns.windows();
#pragma unroll 1  // common networks have one or two windows per pixel
    for (int x = xs.begin; x < xs.end; ++x)
      f((row + x) * windows.channels + at.channel,
        (at.y - windows.rows.start(y)) * windows.columns.kernel() + at.x - windows.columns.start(x), y, x);
  }
}

/// Returns the initial value of a gradient's sum: zeros, or the pack at dx in GradMode::accumulate.
template <int kWidth, class T>
__device__ Pack<compute_t<T>, kWidth> initial(GradMode mode, const T* dx) {
  Pack<compute_t<T>, kWidth> sum{};
  if (mode == GradMode::accumulate) {
    const Pack<T, kWidth> before = load_pack<kWidth>(dx);
    for (int i = 0; i < kWidth; ++i) sum.values[i] = widen(before.values[i]);
  }
  return sum;
}

/// Rounds a pack to T and stores it.
template <int kWidth, class T>
__device__ void store_narrow(T* to, const Pack<compute_t<T>, kWidth>& from) {
  Pack<T, kWidth> pack;
  for (int i = 0; i < kWidth; ++i) pack.values[i] = narrow<T>(from.values[i]);
  store_pack(to, pack);
}

template <class T, class Tap, int kWidth, class Axis>
__global__ void __launch_bounds__(kPoolBlock)
    max_forward_kernel(PackGrid grid, PoolWindows<Axis> windows, const T* x, T* y, Tap* taps) {
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size()) return;
  const PackCoordinates at = grid.coordinates(index);
  Pack<compute_t<T>, kWidth> best;
  Pack<Tap, kWidth> where;
  bool first = true;
  for_each_pixel<kWidth>(windows, at, x, [&](int tap, const Pack<T, kWidth>& pack) {
    for (int i = 0; i < kWidth; ++i) {
      const compute_t<T> candidate = widen(pack.values[i]);
      // True if the candidate is larger or the first NaN, since every comparison with NaN is false.
      if (first || (!(candidate <= best.values[i]) && best.values[i] == best.values[i])) {
        best.values[i] = candidate;
        where.values[i] = static_cast<Tap>(tap);
      }
    }
    first = false;
  });
  const std::int64_t offset = at.pixel * windows.channels + at.channel;
  store_narrow(y + offset, best);
  store_pack(taps + offset, where);
}

template <class T, class Tap, int kWidth, class Axis>
__global__ void __launch_bounds__(kPoolBlock)
    max_backward_kernel(PackGrid grid, PoolWindows<Axis> windows, GradMode mode, const T* dy, const Tap* taps,
                        T* dx) {
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size()) return;
  const PackCoordinates at = grid.coordinates(index);
  T* const to = dx + at.pixel * windows.channels + at.channel;
  auto sum = initial<kWidth>(mode, to);
  for_each_window(windows, at, [&](std::int64_t offset, int tap, int, int) {
    const Pack<Tap, kWidth> chosen = load_pack<kWidth>(taps + offset);
    const Pack<T, kWidth> slope = load_pack<kWidth>(dy + offset);
    for (int i = 0; i < kWidth; ++i)
      if (chosen.values[i] == tap) sum.values[i] += widen(slope.values[i]);
  });
  store_narrow(to, sum);
}

/// The same for square windows that do not overlap and have no padding. A cell is stride x stride pixels of the image, or
/// fewer at its end, and has at most one window. One thread computes a pack of channels of a cell.
template <class T, int kWidth>
__global__ void __launch_bounds__(kPoolBlock)
    max_backward_cells_kernel(PackGrid cells, PoolWindows<WindowAxis> windows, GradMode mode, const T* dy,
                              const std::uint8_t* taps, T* dx) {
  const std::int64_t index = cuda::thread_index();
  if (index >= cells.size()) return;
  const PackCoordinates at = cells.coordinates(index);
  const int kernel = windows.rows.kernel(), stride = windows.rows.stride();
  const bool has_window = at.y < windows.rows.windows() && at.x < windows.columns.windows();
  Pack<T, kWidth> slope{};
  Pack<std::uint8_t, kWidth> chosen{};
  if (has_window) {
    const std::int64_t row = (at.image * windows.rows.windows() + at.y) * windows.columns.windows();
    const std::int64_t offset = (row + at.x) * windows.channels + at.channel;
    slope = load_pack<kWidth>(dy + offset);
    chosen = load_pack<kWidth>(taps + offset);
  }
  const int bottom = std::min((at.y + 1) * stride, windows.rows.pixels());
  const int right = std::min((at.x + 1) * stride, windows.columns.pixels());
  for (int y = at.y * stride; y < bottom; ++y)
    for (int x = at.x * stride; x < right; ++x) {
      const int ky = y - at.y * stride, kx = x - at.x * stride;
      const bool is_covered = has_window && ky < kernel && kx < kernel;
      const std::int64_t pixel = (at.image * windows.rows.pixels() + y) * windows.columns.pixels() + x;
      T* const to = dx + pixel * windows.channels + at.channel;
      auto sum = initial<kWidth>(mode, to);
      for (int i = 0; i < kWidth; ++i)
        if (is_covered && chosen.values[i] == ky * kernel + kx) sum.values[i] += widen(slope.values[i]);
      store_narrow(to, sum);
    }
}

template <class T, int kWidth, class Axis>
__global__ void __launch_bounds__(kPoolBlock)
    avg_forward_kernel(PackGrid grid, PoolWindows<Axis> windows, const T* x, T* y) {
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size()) return;
  const PackCoordinates at = grid.coordinates(index);
  const auto area = static_cast<compute_t<T>>(windows.divisor(at.y, at.x));
  Pack<compute_t<T>, kWidth> sum{};
  for_each_pixel<kWidth>(windows, at, x, [&](int, const Pack<T, kWidth>& pack) {
    for (int i = 0; i < kWidth; ++i) sum.values[i] += widen(pack.values[i]);
  });
  for (int i = 0; i < kWidth; ++i) sum.values[i] /= area;
  store_narrow(y + at.pixel * windows.channels + at.channel, sum);
}

template <class T, int kWidth, class Axis>
__global__ void __launch_bounds__(kPoolBlock)
    avg_backward_kernel(PackGrid grid, PoolWindows<Axis> windows, GradMode mode, const T* dy, T* dx) {
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size()) return;
  const PackCoordinates at = grid.coordinates(index);
  const auto divisor_of = [&](int y, int x) { return static_cast<compute_t<T>>(windows.divisor(y, x)); };
  Pack<compute_t<T>, kWidth> sum{};
  for_each_window(windows, at, [&](std::int64_t offset, int, int y, int x) {
    const Pack<T, kWidth> slope = load_pack<kWidth>(dy + offset);
    const compute_t<T> divisor = windows.kIsUniform ? 1 : divisor_of(y, x);
    for (int i = 0; i < kWidth; ++i) sum.values[i] += widen(slope.values[i]) / divisor;
  });
  T* const to = dx + at.pixel * windows.channels + at.channel;
  auto result = initial<kWidth>(mode, to);
  const compute_t<T> divisor = windows.kIsUniform ? divisor_of(0, 0) : 1;
  for (int i = 0; i < kWidth; ++i)
    result.values[i] += sum.values[i] / divisor;  // one division instead of one per window
  store_narrow(to, result);
}

/// Calls f(T, Tap, width, windows) with values of the types of an array and of max pooling's taps, the width of a pack,
/// and the windows: with PoolAxis if they are adaptive, or if averages have several divisors. Only windows with
/// WindowAxis and taps in u8 come in packs, so all others but very large ones.
template <class F>
void dispatch_pooling(const Shape& image, const Shape& pooled, const Pool2dOptions& options, bool is_average,
                      DType dtype, bool is_aligned, const F& f) {
  const Size2d kernel = options.kernel, stride = options.stride, padding = options.padding;
  const auto channels = static_cast<int>(image[3]);
  const PoolAxis rows(image, pooled, options, 1), columns(image, pooled, options, 2);
  constexpr std::integral_constant<int, 1> kNoPacks;
  dispatch(cuda::kGpuTypes, dtype, [&](auto zero) {
    using T = decltype(zero);
    if (kernel == 0 || (is_average && !(rows.is_uniform() && columns.is_uniform())))
      return f(zero, std::int32_t{}, kNoPacks, PoolWindows<PoolAxis>{rows, columns, channels});
    const PoolWindows<WindowAxis> windows{{image[1], pooled[1], kernel.height, stride.height, padding.height},
                                          {image[2], pooled[2], kernel.width, stride.width, padding.width},
                                          channels};
    if (!is_average && type_of_taps(options) == DType::i32) return f(zero, std::int32_t{}, kNoPacks, windows);
    cuda::dispatch_width<T>(is_aligned && cuda::comes_in_packs<T>(image[3]),
                            [&](auto width) { f(zero, std::uint8_t{}, width, windows); });
  });
}

}  // namespace

void max_pool2d_forward(CudaStream& stream, ConstView x, View y, View taps, Pool2dOptions options) {
  if (y.numel() == 0) return;
  const bool aligned = is_aligned(x.data) && is_aligned(y.data) && is_aligned(taps.data);
  const auto run = [&]<class T, class Tap, class Width, class Axis>(T, Tap, Width,
                                                                    const PoolWindows<Axis>& windows) {
    const PackGrid grid(y.shape, Width::value);
    launch(stream, blocks_for(grid.size(), kPoolBlock), kPoolBlock, 0,
           max_forward_kernel<T, Tap, Width::value, Axis>, grid, windows, x.as<T>(), y.as<T>(),
           taps.as<Tap>());
  };
  dispatch_pooling(x.shape, y.shape, options, /*is_average=*/false, y.dtype, aligned, run);
}

void max_pool2d_backward(CudaStream& stream, ConstView dy, ConstView taps, GradView dx,
                         Pool2dOptions options) {
  if (!dx.wanted() || dx.numel() == 0) return;
  const bool aligned = is_aligned(dy.data) && is_aligned(taps.data) && is_aligned(dx.data);
  const int kernel = options.kernel.height, stride = options.stride.height;
  const bool has_cells =
      options.kernel == kernel && options.stride == stride && stride >= kernel && options.padding == 0;
  const auto run = [&]<class T, class Tap, class Width, class Axis>(T, Tap, Width,
                                                                    const PoolWindows<Axis>& windows) {
    constexpr int kWidth = Width::value;
    if constexpr (std::is_same_v<Tap, std::uint8_t>) {
      if (has_cells) {
        const PackGrid cells(
            {dx.shape[0], blocks_for(dx.shape[1], stride), blocks_for(dx.shape[2], stride), dx.shape[3]},
            kWidth);
        return launch(stream, blocks_for(cells.size(), kPoolBlock), kPoolBlock, 0,
                      max_backward_cells_kernel<T, kWidth>, cells, windows, dx.mode, dy.as<T>(),
                      taps.as<Tap>(), dx.as<T>());
      }
    }
    const PackGrid grid(dx.shape, kWidth);
    launch(stream, blocks_for(grid.size(), kPoolBlock), kPoolBlock, 0,
           max_backward_kernel<T, Tap, kWidth, Axis>, grid, windows, dx.mode, dy.as<T>(), taps.as<Tap>(),
           dx.as<T>());
  };
  dispatch_pooling(dx.shape, dy.shape, options, /*is_average=*/false, dx.dtype, aligned, run);
}

void avg_pool2d_forward(CudaStream& stream, ConstView x, View y, Pool2dOptions options) {
  if (y.numel() == 0) return;
  const auto run = [&]<class T, class Tap, class Width, class Axis>(T, Tap, Width,
                                                                    const PoolWindows<Axis>& windows) {
    const PackGrid grid(y.shape, Width::value);
    launch(stream, blocks_for(grid.size(), kPoolBlock), kPoolBlock, 0,
           avg_forward_kernel<T, Width::value, Axis>, grid, windows, x.as<T>(), y.as<T>());
  };
  dispatch_pooling(x.shape, y.shape, options, /*is_average=*/true, y.dtype,
                   is_aligned(x.data) && is_aligned(y.data), run);
}

void avg_pool2d_backward(CudaStream& stream, ConstView dy, GradView dx, Pool2dOptions options) {
  if (!dx.wanted() || dx.numel() == 0) return;
  const auto run = [&]<class T, class Tap, class Width, class Axis>(T, Tap, Width,
                                                                    const PoolWindows<Axis>& windows) {
    const PackGrid grid(dx.shape, Width::value);
    launch(stream, blocks_for(grid.size(), kPoolBlock), kPoolBlock, 0,
           avg_backward_kernel<T, Width::value, Axis>, grid, windows, dx.mode, dy.as<T>(), dx.as<T>());
  };
  dispatch_pooling(dx.shape, dy.shape, options, /*is_average=*/true, dx.dtype,
                   is_aligned(dy.data) && is_aligned(dx.data), run);
}

// Global average pooling on the GPU (kernels/pool2d.h) and its gradient. A block is `lanes` packs of channels
// wide and kThreads / lanes pixels high: the fewer the channels, the more threads share the pixels.

namespace {

constexpr int kThreads = 256;
constexpr int kMaxLanes = 32;        // a warp moves 32 adjacent packs
constexpr int kPixelsPerThread = 8;  // in backward: this many stores per load and division

/// Returns the block dimensions for images of `packs` packs of channels.
dim3 block_for(std::int64_t packs) {
  const auto lanes = std::bit_ceil(static_cast<unsigned>(std::min<std::int64_t>(packs, kMaxLanes)));
  return {lanes, kThreads / lanes};
}

/// Shared memory for each thread's partial sums of one pack of channels. The element index comes first, so
/// that the threads of a warp use different banks.
template <class T, int kWidth>
struct PartialSums {
  compute_t<T> of[kWidth][kThreads];
};

/// Computes y [image][channel], the mean of x [image][0 … pixels - 1][channel]. Each thread sums every
/// blockDim.y-th pixel, then the rows of the block are combined in a binary tree. One block per image and
/// chunk of channels.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    mean_kernel(std::int64_t pixels, std::int64_t packs, cuda::Divisor chunks, bool is_aligned, const T* x,
                T* y) {
  auto& sums = cuda::shared_memory<PartialSums<T, kWidth>>();
  const std::int64_t image = chunks.quotient(std::int64_t{blockIdx.x});
  const std::int64_t chunk = blockIdx.x - image * chunks.value();
  const std::int64_t pack = chunk * blockDim.x + threadIdx.x;
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;

  compute_t<T> sum[kWidth] = {};
  if (pack < packs)
    for (std::int64_t pixel = threadIdx.y; pixel < pixels; pixel += blockDim.y) {
      const auto terms =
          load_pack<kWidth>(x + ((image * pixels + pixel) * packs + pack) * kWidth, is_aligned);
      for (int i = 0; i < kWidth; ++i) sum[i] += widen(terms.values[i]);
    }
  for (int i = 0; i < kWidth; ++i) sums.of[i][thread] = sum[i];
  for (unsigned rows = blockDim.y / 2; rows > 0; rows /= 2) {
    __syncthreads();
    if (threadIdx.y < rows)
      for (int i = 0; i < kWidth; ++i) sums.of[i][thread] += sums.of[i][thread + rows * blockDim.x];
  }
  if (threadIdx.y > 0 || pack >= packs) return;
  Pack<T, kWidth> mean;
  for (int i = 0; i < kWidth; ++i)
    mean.values[i] = narrow<T>(sums.of[i][thread] / static_cast<compute_t<T>>(pixels));
  T* const to = y + (image * packs + pack) * kWidth;
  if (is_aligned) return store_pack(to, mean);
  for (int i = 0; i < kWidth; ++i) to[i] = mean.values[i];
}

/// Computes dx [image][pixel][channel] = dy [image][channel] / pixels, or +=. One block per image, chunk of
/// blockDim.y kPixelsPerThread pixels, and chunk of channels. The chunk of channels varies fastest.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(std::int64_t pixels, std::int64_t packs, cuda::Divisor pixel_chunks,
                  cuda::Divisor channel_chunks, GradMode mode, const T* dy, T* dx) {
  const std::int64_t row = channel_chunks.quotient(std::int64_t{blockIdx.x});
  const std::int64_t image = pixel_chunks.quotient(row);
  const std::int64_t pack = (blockIdx.x - row * channel_chunks.value()) * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const std::int64_t begin = (row - image * pixel_chunks.value()) * blockDim.y * kPixelsPerThread;
  const std::int64_t end = std::min<std::int64_t>(begin + blockDim.y * kPixelsPerThread, pixels);

  const auto total = load_pack<kWidth>(dy + (image * packs + pack) * kWidth);
  compute_t<T> value[kWidth];
  for (int i = 0; i < kWidth; ++i) value[i] = widen(total.values[i]) / static_cast<compute_t<T>>(pixels);
  for (std::int64_t pixel = begin + threadIdx.y; pixel < end; pixel += blockDim.y) {
    T* const to = dx + ((image * pixels + pixel) * packs + pack) * kWidth;
    Pack<T, kWidth> result{};
    if (mode == GradMode::accumulate) result = load_pack<kWidth>(to);
    for (int i = 0; i < kWidth; ++i)
      result.values[i] =
          narrow<T>(mode == GradMode::accumulate ? widen(result.values[i]) + value[i] : value[i]);
    store_pack(to, result);
  }
}

}  // namespace

void global_avg_pool2d_forward(CudaStream& stream, ConstView x, View y) {
  if (y.numel() == 0) return;
  const std::int64_t images = x.shape[0];
  const std::int64_t pixels = x.shape[1] * x.shape[2];
  const std::int64_t channels = x.shape[3];
  dispatch(cuda::kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool is_aligned = cuda::is_aligned(x.data) && cuda::is_aligned(y.data);
    cuda::dispatch_width<T>(channels % cuda::kVectorWidth<T> == 0, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const std::int64_t packs = channels / kWidth;
      const dim3 block = block_for(packs);
      const std::int64_t chunks = blocks_for(packs, static_cast<int>(block.x));
      launch(stream, static_cast<unsigned>(images * chunks), block, sizeof(PartialSums<T, kWidth>),
             mean_kernel<T, kWidth>, pixels, packs, cuda::Divisor(chunks), is_aligned, x.as<T>(), y.as<T>());
    });
  });
}

void global_avg_pool2d_backward(CudaStream& stream, ConstView dy, GradView dx) {
  if (!dx.wanted() || dx.numel() == 0) return;
  const std::int64_t images = dx.shape[0];
  const std::int64_t pixels = dx.shape[1] * dx.shape[2];
  const std::int64_t channels = dx.shape[3];
  dispatch(cuda::kGpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::dispatch_width<T>(cuda::comes_in_packs<T>(channels, dy.data, dx.data), [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const std::int64_t packs = channels / kWidth;
      const dim3 block = block_for(packs);
      const std::int64_t channel_chunks = blocks_for(packs, static_cast<int>(block.x));
      const std::int64_t pixel_chunks = blocks_for(pixels, static_cast<int>(block.y) * kPixelsPerThread);
      launch(stream, static_cast<unsigned>(images * pixel_chunks * channel_chunks), block, 0,
             spread_kernel<T, kWidth>, pixels, packs, cuda::Divisor(pixel_chunks),
             cuda::Divisor(channel_chunks), dx.mode, dy.as<T>(), dx.as<T>());
    });
  });
}

}  // namespace convoy::kernels

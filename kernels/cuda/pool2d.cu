// kernels/pool2d.h on the GPU: one thread computes one pack of channels of one pixel of the result. In the
// forward direction that is a pixel of y, in the backward direction a pixel of dx. A gradient is gathered
// from the windows that cover the pixel, in row order, without atomics. The order is that of the CPU, so
// every run gives the same bits. Overlapping windows are read again from the caches. Where windows do not overlap,
// the gradient of max pooling has a thread for each window, which reads it once.
#include "convoy/kernels/pool2d.h"

#include "convoy/kernels/cuda/primitives/windows.h"

namespace convoy::kernels {
namespace {

using cuda::compute_t;
using cuda::is_aligned;
using cuda::load_pack;
using cuda::narrow;
using cuda::Pack;
using cuda::PackCoordinates;
using cuda::PackGrid;
using cuda::Range;
using cuda::store_pack;
using cuda::widen;
using cuda::WindowAxis;

constexpr int kPoolBlock = 256;

struct PoolWindows {
  WindowAxis rows, columns;
  int channels;

  PoolWindows(const Shape& image, const Shape& pooled, Pool2dOptions options)
      : rows(image[1], pooled[1], options.kernel, options.stride, options.padding),
        columns(image[2], pooled[2], options.kernel, options.stride, options.padding),
        channels(static_cast<int>(image[3])) {}
};

/// Calls f(tap, pack of x) for each pixel of the window of output `at`, in row order. `tap` is the index of the
/// pixel in the window, ky kernel + kx.
template <int kWidth, class T, class F>
__device__ void for_each_pixel(const PoolWindows& windows, const PackCoordinates& at, const T* x, F f) {
  const Range ys = windows.rows.pixels_of(at.y);
  const Range xs = windows.columns.pixels_of(at.x);
  const std::int64_t width = windows.columns.pixels();
  const T* const image = x + at.image * windows.rows.pixels() * width * windows.channels + at.channel;
  const int top = windows.rows.start(at.y), left = windows.columns.start(at.x);
  for (int y = ys.begin; y < ys.end; ++y)
    for (int column = xs.begin; column < xs.end; ++column)
      f((y - top) * windows.rows.kernel() + column - left,
        load_pack<kWidth>(image + (y * width + column) * windows.channels));
}

/// Calls f(offset, tap) for each window that covers pixel `at` of the image, in row order. `offset` is the
/// index of the pack in the pooled arrays, and `tap` the index of the pixel in the window.
template <class F>
__device__ void for_each_window(const PoolWindows& windows, const PackCoordinates& at, F f) {
  const Range ys = windows.rows.windows_over(at.y);
  const Range xs = windows.columns.windows_over(at.x);
  for (int y = ys.begin; y < ys.end; ++y) {
    const std::int64_t row = (at.image * windows.rows.windows() + y) * windows.columns.windows();
#pragma unroll 1  // common networks have one or two windows per pixel
    for (int x = xs.begin; x < xs.end; ++x)
      f((row + x) * windows.channels + at.channel,
        (at.y - windows.rows.start(y)) * windows.rows.kernel() + at.x - windows.columns.start(x));
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

template <class T, class Tap, int kWidth>
__global__ void __launch_bounds__(kPoolBlock)
    max_forward_kernel(PackGrid grid, PoolWindows windows, const T* x, T* y, Tap* taps) {
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

template <class T, class Tap, int kWidth>
__global__ void __launch_bounds__(kPoolBlock)
    max_backward_kernel(PackGrid grid, PoolWindows windows, GradMode mode, const T* dy, const Tap* taps,
                        T* dx) {
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size()) return;
  const PackCoordinates at = grid.coordinates(index);
  T* const to = dx + at.pixel * windows.channels + at.channel;
  auto sum = initial<kWidth>(mode, to);
  for_each_window(windows, at, [&](std::int64_t offset, int tap) {
    const Pack<Tap, kWidth> chosen = load_pack<kWidth>(taps + offset);
    const Pack<T, kWidth> slope = load_pack<kWidth>(dy + offset);
    for (int i = 0; i < kWidth; ++i)
      if (chosen.values[i] == tap) sum.values[i] += widen(slope.values[i]);
  });
  store_narrow(to, sum);
}

/// The same for windows that do not overlap and have no padding. A cell is stride x stride pixels of the image, or
/// fewer at its end, and has at most one window. One thread computes a pack of channels of a cell.
template <class T, int kWidth>
__global__ void __launch_bounds__(kPoolBlock)
    max_backward_cells_kernel(PackGrid cells, PoolWindows windows, GradMode mode, const T* dy,
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

template <class T, int kWidth>
__global__ void __launch_bounds__(kPoolBlock)
    avg_forward_kernel(PackGrid grid, PoolWindows windows, const T* x, T* y) {
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size()) return;
  const PackCoordinates at = grid.coordinates(index);
  const auto area = static_cast<compute_t<T>>(windows.rows.kernel() * windows.columns.kernel());
  Pack<compute_t<T>, kWidth> sum{};
  for_each_pixel<kWidth>(windows, at, x, [&](int, const Pack<T, kWidth>& pack) {
    for (int i = 0; i < kWidth; ++i) sum.values[i] += widen(pack.values[i]);
  });
  for (int i = 0; i < kWidth; ++i) sum.values[i] /= area;
  store_narrow(y + at.pixel * windows.channels + at.channel, sum);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kPoolBlock)
    avg_backward_kernel(PackGrid grid, PoolWindows windows, GradMode mode, const T* dy, T* dx) {
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size()) return;
  const PackCoordinates at = grid.coordinates(index);
  const auto area = static_cast<compute_t<T>>(windows.rows.kernel() * windows.columns.kernel());
  Pack<compute_t<T>, kWidth> sum{};
  for_each_window(windows, at, [&](std::int64_t offset, int) {
    const Pack<T, kWidth> slope = load_pack<kWidth>(dy + offset);
    for (int i = 0; i < kWidth; ++i) sum.values[i] += widen(slope.values[i]);
  });
  T* const to = dx + at.pixel * windows.channels + at.channel;
  auto result = initial<kWidth>(mode, to);
  for (int i = 0; i < kWidth; ++i)
    result.values[i] += sum.values[i] / area;  // one division instead of one per window
  store_narrow(to, result);
}

/// Calls f(T, Tap, width) with values of the types of an array and of its taps, and the width of a pack. Taps in
/// i32, which belong to very large windows, do not come in packs.
template <class F>
void dispatch_max(const Shape& shape, DType dtype, DType of_taps, bool is_aligned, const F& f) {
  dispatch(cuda::kGpuTypes, dtype, [&](auto zero) {
    using T = decltype(zero);
    if (of_taps == DType::i32) return f(zero, std::int32_t{}, std::integral_constant<int, 1>());
    cuda::dispatch_width<T>(is_aligned && cuda::comes_in_packs<T>(shape[3]),
                            [&](auto width) { f(zero, std::uint8_t{}, width); });
  });
}

}  // namespace

void max_pool2d_forward(CudaStream& stream, ConstView x, View y, View taps, Pool2dOptions options) {
  if (y.numel() == 0) return;
  const bool aligned = is_aligned(x.data) && is_aligned(y.data) && is_aligned(taps.data);
  dispatch_max(y.shape, y.dtype, taps.dtype, aligned, [&](auto zero, auto tap, auto width) {
    using T = decltype(zero);
    using Tap = decltype(tap);
    const PackGrid grid(y.shape, width());
    launch(stream, blocks_for(grid.size(), kPoolBlock), kPoolBlock, 0, max_forward_kernel<T, Tap, width()>,
           grid, PoolWindows(x.shape, y.shape, options), x.as<T>(), y.as<T>(), taps.as<Tap>());
  });
}

void max_pool2d_backward(CudaStream& stream, ConstView dy, ConstView taps, GradView dx,
                         Pool2dOptions options) {
  if (!dx.wanted() || dx.numel() == 0) return;
  const bool aligned = is_aligned(dy.data) && is_aligned(taps.data) && is_aligned(dx.data);
  dispatch_max(dx.shape, dx.dtype, taps.dtype, aligned, [&](auto zero, auto tap, auto width) {
    using T = decltype(zero);
    using Tap = decltype(tap);
    const PoolWindows windows(dx.shape, dy.shape, options);
    if constexpr (std::is_same_v<Tap, std::uint8_t>) {
      if (options.stride >= options.kernel && options.padding == 0) {
        const auto cells_of = [&](std::int64_t pixels) {
          return (pixels + options.stride - 1) / options.stride;
        };
        const PackGrid cells({dx.shape[0], cells_of(dx.shape[1]), cells_of(dx.shape[2]), dx.shape[3]},
                             width());
        return launch(stream, blocks_for(cells.size(), kPoolBlock), kPoolBlock, 0,
                      max_backward_cells_kernel<T, width()>, cells, windows, dx.mode, dy.as<T>(),
                      taps.as<Tap>(), dx.as<T>());
      }
    }
    const PackGrid grid(dx.shape, width());
    launch(stream, blocks_for(grid.size(), kPoolBlock), kPoolBlock, 0, max_backward_kernel<T, Tap, width()>,
           grid, windows, dx.mode, dy.as<T>(), taps.as<Tap>(), dx.as<T>());
  });
}

void avg_pool2d_forward(CudaStream& stream, ConstView x, View y, Pool2dOptions options) {
  if (y.numel() == 0) return;
  dispatch(cuda::kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool packs = cuda::comes_in_packs<T>(y.shape[3], x.data, y.data);
    cuda::dispatch_width<T>(packs, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const PackGrid grid(y.shape, kWidth);
      launch(stream, blocks_for(grid.size(), kPoolBlock), kPoolBlock, 0, avg_forward_kernel<T, kWidth>, grid,
             PoolWindows(x.shape, y.shape, options), x.as<T>(), y.as<T>());
    });
  });
}

void avg_pool2d_backward(CudaStream& stream, ConstView dy, GradView dx, Pool2dOptions options) {
  if (!dx.wanted() || dx.numel() == 0) return;
  dispatch(cuda::kGpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool packs = cuda::comes_in_packs<T>(dx.shape[3], dy.data, dx.data);
    cuda::dispatch_width<T>(packs, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const PackGrid grid(dx.shape, kWidth);
      launch(stream, blocks_for(grid.size(), kPoolBlock), kPoolBlock, 0, avg_backward_kernel<T, kWidth>, grid,
             PoolWindows(dx.shape, dy.shape, options), dx.mode, dy.as<T>(), dx.as<T>());
    });
  });
}

}  // namespace convoy::kernels

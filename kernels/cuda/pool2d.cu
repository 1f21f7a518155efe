// Pooling on the GPU: one thread computes one pack of channels of one pixel, forward of the output and
// backward of the image's gradient. A gradient is gathered from the windows that cover the pixel, in row
// order: no atomics, the order of the CPU, the same bits in each run. Windows that overlap are read again
// from the caches.
#include "kernels/pool2d.h"

#include "kernels/cuda/windows.h"

namespace convoy {
namespace {

using cuda::compute_t;
using cuda::load_pack;
using cuda::narrow;
using cuda::Pack;
using cuda::PackGrid;
using cuda::Place;
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

/// f(position, pack of x) for each pixel of the window at `place` of the output, in row order.
template <int kWidth, class T, class F>
__device__ void for_each_pixel(const PoolWindows& windows, const Place& place, const T* x, F f) {
  const Range ys = windows.rows.pixels_of(place.y);
  const Range xs = windows.columns.pixels_of(place.x);
  const std::int64_t width = windows.columns.pixels();
  const T* const image = x + place.image * windows.rows.pixels() * width * windows.channels + place.channel;
  for (int y = ys.begin; y < ys.end; ++y)
    for (int column = xs.begin; column < xs.end; ++column) {
      const std::int64_t position = y * width + column;
      f(static_cast<int>(position), load_pack<kWidth>(image + position * windows.channels));
    }
}

/// f(offset of the pack in the pooled arrays) for each window that covers `place` of the image, in row order.
template <class F>
__device__ void for_each_window(const PoolWindows& windows, const Place& place, F f) {
  const Range ys = windows.rows.windows_over(place.y);
  const Range xs = windows.columns.windows_over(place.x);
  for (int y = ys.begin; y < ys.end; ++y) {
    const std::int64_t row = (place.image * windows.rows.windows() + y) * windows.columns.windows();
#pragma unroll 1  // there are one or two in common networks
    for (int x = xs.begin; x < xs.end; ++x) f((row + x) * windows.channels + place.channel);
  }
}

/// What a gradient's sum begins with: zeros, or what is there.
template <int kWidth, class T>
__device__ Pack<compute_t<T>, kWidth> initial(Mode mode, const T* dx) {
  Pack<compute_t<T>, kWidth> sum{};
  if (mode == Mode::add) {
    const Pack<T, kWidth> before = load_pack<kWidth>(dx);
    for (int i = 0; i < kWidth; ++i) sum.values[i] = widen(before.values[i]);
  }
  return sum;
}

template <int kWidth, class T>
__device__ void store_narrow(T* to, const Pack<compute_t<T>, kWidth>& from) {
  Pack<T, kWidth> pack;
  for (int i = 0; i < kWidth; ++i) pack.values[i] = narrow<T>(from.values[i]);
  store_pack(to, pack);
}

/// Positions take 4 bytes beside elements of 2, 4 or 8: a pack of them comes in parts of at most 16 bytes.
template <int kWidth>
struct Positions {
  static constexpr int kPart = std::min(kWidth, 4);
  int values[kWidth];

  __device__ void load(const std::int32_t* from) {
    for (int begin = 0; begin < kWidth; begin += kPart) {
      const Pack<std::int32_t, kPart> part = load_pack<kPart>(from + begin);
      for (int i = 0; i < kPart; ++i) values[begin + i] = part.values[i];
    }
  }
  __device__ void store(std::int32_t* to) const {
    for (int begin = 0; begin < kWidth; begin += kPart) {
      Pack<std::int32_t, kPart> part;
      for (int i = 0; i < kPart; ++i) part.values[i] = values[begin + i];
      store_pack(to + begin, part);
    }
  }
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kPoolBlock)
    max_forward_kernel(PackGrid grid, PoolWindows windows, const T* x, T* y, std::int32_t* positions) {
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size()) return;
  const Place place = grid.place(index);
  Pack<compute_t<T>, kWidth> best;
  Positions<kWidth> where;
  bool first = true;
  for_each_pixel<kWidth>(windows, place, x, [&](int position, const Pack<T, kWidth>& pack) {
    for (int i = 0; i < kWidth; ++i) {
      const compute_t<T> candidate = widen(pack.values[i]);
      // Larger, or the first NaN: no comparison with a NaN is true.
      if (first || (!(candidate <= best.values[i]) && best.values[i] == best.values[i])) {
        best.values[i] = candidate;
        where.values[i] = position;
      }
    }
    first = false;
  });
  const std::int64_t offset = place.pixel * windows.channels + place.channel;
  store_narrow(y + offset, best);
  where.store(positions + offset);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kPoolBlock)
    max_backward_kernel(PackGrid grid, PoolWindows windows, Mode mode, const T* dy,
                        const std::int32_t* positions, T* dx) {
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size()) return;
  const Place place = grid.place(index);
  const int here = place.y * windows.columns.pixels() + place.x;
  T* const to = dx + place.pixel * windows.channels + place.channel;
  auto sum = initial<kWidth>(mode, to);
  for_each_window(windows, place, [&](std::int64_t offset) {
    Positions<kWidth> chosen;
    chosen.load(positions + offset);
    const Pack<T, kWidth> slope = load_pack<kWidth>(dy + offset);
    for (int i = 0; i < kWidth; ++i)
      if (chosen.values[i] == here) sum.values[i] += widen(slope.values[i]);
  });
  store_narrow(to, sum);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kPoolBlock)
    avg_forward_kernel(PackGrid grid, PoolWindows windows, const T* x, T* y) {
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size()) return;
  const Place place = grid.place(index);
  const auto area = static_cast<compute_t<T>>(windows.rows.kernel() * windows.columns.kernel());
  Pack<compute_t<T>, kWidth> sum{};
  for_each_pixel<kWidth>(windows, place, x, [&](int, const Pack<T, kWidth>& pack) {
    for (int i = 0; i < kWidth; ++i) sum.values[i] += widen(pack.values[i]);
  });
  for (int i = 0; i < kWidth; ++i) sum.values[i] /= area;
  store_narrow(y + place.pixel * windows.channels + place.channel, sum);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kPoolBlock)
    avg_backward_kernel(PackGrid grid, PoolWindows windows, Mode mode, const T* dy, T* dx) {
  const std::int64_t index = cuda::thread_index();
  if (index >= grid.size()) return;
  const Place place = grid.place(index);
  const auto area = static_cast<compute_t<T>>(windows.rows.kernel() * windows.columns.kernel());
  Pack<compute_t<T>, kWidth> sum{};
  for_each_window(windows, place, [&](std::int64_t offset) {
    const Pack<T, kWidth> slope = load_pack<kWidth>(dy + offset);
    for (int i = 0; i < kWidth; ++i) sum.values[i] += widen(slope.values[i]);
  });
  T* const to = dx + place.pixel * windows.channels + place.channel;
  auto result = initial<kWidth>(mode, to);
  for (int i = 0; i < kWidth; ++i) result.values[i] += sum.values[i] / area;  // divided once, not by window
  store_narrow(to, result);
}

}  // namespace

void max_pool2d_forward(CudaStream& stream, ConstView x, View y, View positions, Pool2dOptions options) {
  if (y.numel() == 0) return;
  cuda::dispatch_floating(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool packs = cuda::comes_in_packs<T>(y.shape[3], x.data, y.data, positions.data);
    cuda::dispatch_width<T>(packs, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const PackGrid grid(y.shape, kWidth);
      launch(stream, blocks_for(grid.size(), kPoolBlock), kPoolBlock, 0, max_forward_kernel<T, kWidth>, grid,
             PoolWindows(x.shape, y.shape, options), x.as<T>(), y.as<T>(), positions.as<std::int32_t>());
    });
  });
}

void max_pool2d_backward(CudaStream& stream, ConstView dy, ConstView positions, GradView dx,
                         Pool2dOptions options) {
  if (!dx.wanted() || dx.numel() == 0) return;
  cuda::dispatch_floating(dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool packs = cuda::comes_in_packs<T>(dx.shape[3], dy.data, positions.data, dx.data);
    cuda::dispatch_width<T>(packs, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const PackGrid grid(dx.shape, kWidth);
      launch(stream, blocks_for(grid.size(), kPoolBlock), kPoolBlock, 0, max_backward_kernel<T, kWidth>, grid,
             PoolWindows(dx.shape, dy.shape, options), dx.mode, dy.as<T>(), positions.as<std::int32_t>(),
             dx.as<T>());
    });
  });
}

void avg_pool2d_forward(CudaStream& stream, ConstView x, View y, Pool2dOptions options) {
  if (y.numel() == 0) return;
  cuda::dispatch_floating(y.dtype, [&](auto zero) {
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
  cuda::dispatch_floating(dx.dtype, [&](auto zero) {
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

}  // namespace convoy

// kernels/pool2d.h on the CPU.
#include "convoy/kernels/pool2d.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/cpu/primitives/simd.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/shared/pool2d_geometry.h"

namespace convoy::kernels {
namespace {

constexpr std::int64_t kChannelsAtOnce = 64;  // their sums fit the L1 cache

// One axis of a window.
struct PoolWindow {
  std::int64_t start;       // its first pixel, which may be in the padding
  std::int64_t begin, end;  // its pixels inside the image
  std::int64_t divisor;     // the number of pixels that an average counts
};

std::vector<PoolWindow> windows_of(const PoolAxis& axis) {
  std::vector<PoolWindow> windows;
  for (int o = 0; o < axis.windows(); ++o) {
    const PoolAxis::Range pixels = axis.pixels_of(o);
    windows.push_back({axis.start(o), pixels.begin, pixels.end, axis.divisor(o)});
  }
  return windows;
}

// The sizes of pooling from images [n, h, w, c] to [n, oh, ow, c].
struct PoolSizes {
  std::int64_t n, h, w, c, oh, ow;
  std::int64_t kernel;  // the width of the largest window, which is the distance of its rows of taps
  std::vector<PoolWindow> rows, columns;

  PoolSizes(const Shape& image, const Shape& pooled, const Pool2dOptions& options)
      : n(image[0]),
        h(image[1]),
        w(image[2]),
        c(image[3]),
        oh(pooled[1]),
        ow(pooled[2]),
        kernel(PoolAxis(image, pooled, options, 2).kernel()),
        rows(windows_of({image, pooled, options, 1})),
        columns(windows_of({image, pooled, options, 2})) {}
};

// Calls f(pixel, tap) for each pixel of a window that is inside the image, in row order. `pixel` is the index
// y width + x in the image, and `tap` the index ky kernel + kx in the window.
template <class F>
void for_each_pixel(PoolWindow rows, PoolWindow columns, std::int64_t width, std::int64_t kernel, F&& f) {
  const std::int64_t count = columns.end - columns.begin;
  std::int64_t pixel = rows.begin * width + columns.begin;
  std::int64_t tap = (rows.begin - rows.start) * kernel + columns.begin - columns.start;
  for (std::int64_t y = rows.begin; y < rows.end; ++y, pixel += width, tap += kernel)
    for (std::int64_t x = 0; x < count; ++x) f(pixel + x, tap + x);
}

// Calls f(row) for each row of outputs of all images, in parallel.
template <class F>
void for_each_row(CpuStream& stream, const PoolSizes& s, F&& f) {
  parallel_for(stream, s.n * s.oh, item_grain(s.ow * s.c * s.kernel),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) f(row);
               });
}

// Calls f(gradient, oy, out) for each row of outputs; f adds to the image's gradient. Windows may overlap,
// so one thread processes each image. GradMode::overwrite clears the gradient first. Half-precision gradients
// are accumulated in an f32 buffer and rounded once.
template <class T, class F>
void scatter(CpuStream& stream, const PoolSizes& s, GradView dx, F&& f) {
  const std::int64_t image_size = s.h * s.w * s.c;
  parallel_for(stream, s.n, item_grain(image_size), [&](std::int64_t begin, std::int64_t end) {
    std::vector<compute_t<T>> sums(static_cast<std::size_t>(kIsHalf<T> ? image_size : 0));
    for (std::int64_t image = begin; image < end; ++image) {
      T* const out = dx.as<T>() + image * image_size;
      compute_t<T>* gradient = nullptr;
      if constexpr (kIsHalf<T>) {
        std::fill(sums.begin(), sums.end(), 0.0F);
        gradient = sums.data();
      } else {
        if (dx.mode == GradMode::overwrite) std::fill_n(out, image_size, T{0});
        gradient = out;
      }
      for (std::int64_t oy = 0; oy < s.oh; ++oy) f(gradient, oy, (image * s.oh + oy) * s.ow);
      if constexpr (kIsHalf<T>)
        map_range(
            dx.mode, 0, image_size, [](float sum) { return sum; }, out, sums.data());
    }
  });
}

// Calls f(c, count) for groups of adjacent channels from c on, where count is a power of two that is known to
// the compiler and at most kCount. Six channels are a group of four and a group of two, or part of a group of eight if
// `reach`, the number of values that may be read and overwritten from channel 0 on, is at least eight.
template <int kCount, class F>
void for_each_group(std::int64_t channels, std::int64_t reach, const F& f, std::int64_t c = 0) {
  for (; c < channels && c + kCount <= reach; c += kCount) f(c, std::integral_constant<int, kCount>());
  if constexpr (kCount > 1)
    if (c < channels) for_each_group<kCount / 2>(channels, channels, f, c);
}

// The largest value of each of kCount adjacent channels over the pixels of a window, and its tap.
// Index is a parameter since GCC does not apply vector_size of a template to other types.
template <class T, int kCount, class Index = std::int32_t, class Byte = std::uint8_t>
class LargestOf {
 public:
  // Starts with the values of the window's first pixel.
  LargestOf(const T* values, std::int64_t tap)
      : best_(vector_of(values)), taps_(Taps{} + static_cast<Index>(tap)) {}

  // Takes the values of a pixel into account. Pixels come in row order. The first one may come again.
  void add(const T* values, std::int64_t tap) {
    const Values found = vector_of(values);
    // A larger value wins, and so does the first NaN, since every comparison with NaN is false.
    const auto wins = ~(found <= best_) & (best_ == best_);
    best_ = wins ? found : best_;
    taps_ = __builtin_convertvector(wins, Taps) != 0 ? Taps{} + static_cast<Index>(tap) : taps_;
  }
  template <class Tap>
  void store(T* best, Tap* taps) const {
    for (int lane = 0; lane < kCount; ++lane) best[lane] = stored<T>(best_[lane]);
    if constexpr (sizeof(Tap) == sizeof(Index)) {
      std::memcpy(taps, &taps_, sizeof taps_);
    } else {
      store_bytes(taps, std::make_integer_sequence<int, kCount>());
    }
  }

 private:
  using C = compute_t<T>;
  typedef C Values __attribute__((vector_size(kCount * sizeof(C))));
  typedef Index Taps __attribute__((vector_size(kCount * sizeof(Index))));
  typedef Byte TapBytes __attribute__((vector_size(sizeof(Taps))));
  static_assert(std::endian::native == std::endian::little);

  static Values vector_of(const T* values) {
    Values found{};
    for (int lane = 0; lane < kCount; ++lane) found[lane] = widened(values[lane]);
    return found;
  }
  // Stores the lowest byte of each tap. GCC converts vectors of integers to bytes lane by lane.
  template <int... lane>
  void store_bytes(Byte* to, std::integer_sequence<int, lane...>) const {
    const auto bytes = std::bit_cast<TapBytes>(taps_);
    const auto lowest = __builtin_shufflevector(bytes, bytes, lane * static_cast<int>(sizeof(Index))...);
    std::memcpy(to, &lowest, kCount);
  }

  Values best_;
  Taps taps_;
};

// Computes row oy of outputs of max pooling of an image. Not inlined: among the variables of its caller, the loop would
// have no registers left.
template <class T, class Tap>
__attribute__((noinline)) void find_largest(const PoolSizes& s, const T* pixels, std::int64_t oy, T* best,
                                            Tap* taps) {
  // Copies, which no store to `taps` can change: bytes may alias everything.
  const std::int64_t channels = s.c, outputs = s.ow, width = s.w, image = s.h * s.w, kernel = s.kernel;
  const PoolWindow rows = s.rows[static_cast<std::size_t>(oy)];
  const PoolWindow* const windows = s.columns.data();
  for (std::int64_t ox = 0; ox < outputs; ++ox, best += channels, taps += channels) {
    const PoolWindow columns = windows[ox];
    const std::int64_t first = rows.begin * width + columns.begin;
    const std::int64_t first_tap = (rows.begin - rows.start) * kernel + columns.begin - columns.start;
    // What is behind the last channel belongs to the next output of this row, which overwrites it.
    const std::int64_t last = (rows.end - 1) * width + columns.end - 1;
    const std::int64_t reach = std::min(outputs - ox, image - last) * channels;
    for_each_group<simd::kRegisterBytes / sizeof(compute_t<T>)>(
        channels, reach, [&](std::int64_t c, auto lanes) {
          LargestOf<T, lanes> largest(pixels + first * channels + c, first_tap);
          for_each_pixel(rows, columns, width, kernel, [&](std::int64_t pixel, std::int64_t tap) {
            largest.add(pixels + pixel * channels + c, tap);
          });
          largest.store(best + c, taps + c);
        });
  }
}

// Adds the gradients of adjacent outputs to the pixels of their windows that the taps name. offsets[tap] is the index of
// the pixel's first channel in its window; `stride` is that of the windows. Not inlined, like
// find_largest().
template <class T, class Tap, class C>
__attribute__((noinline)) void add_to_chosen(const T* dy, const Tap* taps, std::int64_t outputs,
                                             std::int64_t channels, const std::int64_t* offsets,
                                             std::int64_t stride, C* window) {
  for (; outputs > 0; --outputs, dy += channels, taps += channels, window += stride)
    for (std::int64_t c = 0; c < channels; ++c) window[offsets[taps[c]] + c] += widened(dy[c]);
}

// Calls f(T, Tap) with zeros of the type of the images and of the type of the taps.
template <class F>
void dispatch_max(DType dtype, DType of_taps, const F& f) {
  dispatch(kCpuTypes, dtype, [&](auto zero) {
    if (of_taps == DType::u8) return f(zero, std::uint8_t{});
    f(zero, std::int32_t{});
  });
}

}  // namespace

void max_pool2d_forward(CpuStream& stream, ConstView x, View y, View taps, Pool2dOptions options) {
  const PoolSizes s(x.shape, y.shape, options);
  dispatch_max(y.dtype, taps.dtype, [&](auto zero, auto zero_tap) {
    using T = decltype(zero);
    using Tap = decltype(zero_tap);
    for_each_row(stream, s, [&](std::int64_t row) {
      find_largest(s, x.as<T>() + row / s.oh * s.h * s.w * s.c, row % s.oh, y.as<T>() + row * s.ow * s.c,
                   taps.as<Tap>() + row * s.ow * s.c);
    });
  });
}

void max_pool2d_backward(CpuStream& stream, ConstView dy, ConstView taps, GradView dx,
                         Pool2dOptions options) {
  const PoolSizes s(dx.shape, dy.shape, options);
  // The index of each tap's first channel, from the window's first pixel on.
  const int height = PoolAxis(dx.shape, dy.shape, options, 1).kernel();
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(height * s.kernel));
  for (std::int64_t tap = 0; tap < std::ssize(offsets); ++tap)
    offsets[static_cast<std::size_t>(tap)] = (tap / s.kernel * s.w + tap % s.kernel) * s.c;
  dispatch_max(dx.dtype, taps.dtype, [&](auto zero, auto zero_tap) {
    using T = decltype(zero);
    scatter<T>(stream, s, dx, [&](auto* gradient, std::int64_t oy, std::int64_t out) {
      // Adaptive windows have no stride.
      const std::int64_t at_once = options.kernel == 0 ? 1 : s.ow;
      for (std::int64_t ox = 0; ox < s.ow; ox += at_once) {
        // May be before the image, in the padding; the tap of a maximum is not.
        const std::int64_t first =
            s.rows[static_cast<std::size_t>(oy)].start * s.w + s.columns[static_cast<std::size_t>(ox)].start;
        add_to_chosen(dy.as<T>() + (out + ox) * s.c, taps.as<decltype(zero_tap)>() + (out + ox) * s.c,
                      at_once, s.c, offsets.data(), options.stride.width * s.c, gradient + first * s.c);
      }
    });
  });
}

void avg_pool2d_forward(CpuStream& stream, ConstView x, View y, Pool2dOptions options) {
  const PoolSizes s(x.shape, y.shape, options);
  dispatch(kCpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    for_each_row(stream, s, [&](std::int64_t row) {
      const PoolWindow rows = s.rows[static_cast<std::size_t>(row % s.oh)];
      const T* const image = x.as<T>() + row / s.oh * s.h * s.w * s.c;
      T* to = y.as<T>() + row * s.ow * s.c;
      for (const PoolWindow& columns : s.columns) {
        const C area = static_cast<C>(rows.divisor * columns.divisor);
        for (std::int64_t first = 0; first < s.c; first += kChannelsAtOnce) {
          const std::int64_t count = std::min(kChannelsAtOnce, s.c - first);
          C sums[kChannelsAtOnce] = {};
          for_each_pixel(rows, columns, s.w, s.kernel, [&](std::int64_t pixel, std::int64_t) {
            for (std::int64_t c = 0; c < count; ++c) sums[c] += widened(image[pixel * s.c + first + c]);
          });
          map_range<GradMode::overwrite>(
              0, count, [=](C sum) { return sum / area; }, to + first, sums);
        }
        to += s.c;
      }
    });
  });
}

void avg_pool2d_backward(CpuStream& stream, ConstView dy, GradView dx, Pool2dOptions options) {
  const PoolSizes s(dx.shape, dy.shape, options);
  dispatch(kCpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    scatter<T>(stream, s, dx, [&](auto* gradient, std::int64_t oy, std::int64_t out) {
      const PoolWindow rows = s.rows[static_cast<std::size_t>(oy)];
      for (std::int64_t ox = 0; ox < s.ow; ++ox) {
        const PoolWindow columns = s.columns[static_cast<std::size_t>(ox)];
        const auto area = static_cast<compute_t<T>>(rows.divisor * columns.divisor);
        const T* from = dy.as<T>() + (out + ox) * s.c;
        for_each_pixel(rows, columns, s.w, s.kernel, [&](std::int64_t pixel, std::int64_t) {
          for (std::int64_t c = 0; c < s.c; ++c) gradient[pixel * s.c + c] += widened(from[c]) / area;
        });
      }
    });
  });
}

void global_avg_pool2d_forward(CpuStream& stream, ConstView x, View y) {
  const auto pixels = static_cast<double>(x.shape[1] * x.shape[2]);
  y.shape = {x.shape[0], 1, 1, x.shape[3]};
  sum_axes(stream, x, 1 / pixels, GradView(y));
}

void global_avg_pool2d_backward(CpuStream& stream, ConstView dy, GradView dx) {
  const std::int64_t pixels = dx.shape[1] * dx.shape[2];
  const std::int64_t channels = dx.shape[3];
  dispatch(kCpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto count = static_cast<compute_t<T>>(pixels);
    parallel_for(stream, dx.shape[0], item_grain(pixels * channels),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t pixel = begin * pixels; pixel < end * pixels; ++pixel) {
                     const T* from = dy.as<T>() + pixel / pixels * channels;
                     T* to = dx.as<T>() + pixel * channels;
                     map_range(
                         dx.mode, 0, channels, [=](auto sum) { return sum / count; }, to, from);
                   }
                 });
  });
}

}  // namespace convoy::kernels

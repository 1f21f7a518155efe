// Reference convolution on the CPU: the definition in plain loops.
//
//   y[n, oy, ox, o] =
//       bias[o] + sum over ky, kx, i of  x[n, oy s - p + ky d, ox s - p + kx d, g I' + i] filter[o, ky, kx, i]
//
// x is zero outside the image; s is the stride, p the padding and d the dilation of the axis; g is the group
// of filter o, and I' the number of channels of a group. The innermost loop of all three directions runs over
// terms that are contiguous in memory, both in x and in the filter: with one group and no dilation, those of
// all kx and i for a fixed ky; otherwise those of all i for a fixed ky and kx. The order of every sum depends on the shapes only, not on
// the number of threads.
#include <algorithm>
#include <array>

#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels {
namespace {

// Calls run(in, tap, length) for each contiguous part of the window of output pixel (oy, ox) inside the
// image and the channels of the group: `length` elements from index `in` of one image of x, and from index
// `tap` of one filter [kh, kw, i / groups].
template <class Run>
void for_each_run(const ConvSizes& c, std::int64_t oy, std::int64_t ox, std::int64_t group, Run&& run) {
  const std::int64_t top = oy * c.stride.height - c.padding.height, down = c.dilation.height;
  const std::int64_t left = ox * c.stride.width - c.padding.width, right = c.dilation.width;
  const std::int64_t first_kx = (std::max<std::int64_t>(0, -left) + right - 1) / right;
  const std::int64_t count = std::min(c.kw, (c.w - left + right - 1) / right) - first_kx;
  const std::int64_t channels = c.group_inputs();
  if (count <= 0) return;
  for (std::int64_t ky = 0; ky < c.kh; ++ky) {
    const std::int64_t y = top + ky * down;
    if (y < 0 || y >= c.h) continue;
    const std::int64_t in = (y * c.w + left + first_kx * right) * c.i + group * channels;
    const std::int64_t tap = (ky * c.kw + first_kx) * channels;
    if (c.groups == 1 && right == 1)
      run(in, tap, count * channels);
    else
      for (std::int64_t kx = 0; kx < count; ++kx) run(in + kx * right * c.i, tap + kx * channels, channels);
  }
}

// Returns the dot product of a and b. Independent partial sums let the compiler vectorize without reordering.
template <class T>
double dot(const T* a, const T* b, std::int64_t length) {
  constexpr std::int64_t kLanes = 16;
  std::array<double, kLanes> partial{};
  std::int64_t k = 0;
  for (; k + kLanes <= length; k += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      partial[static_cast<std::size_t>(lane)] +=
          static_cast<double>(a[k + lane]) * static_cast<double>(b[k + lane]);
  double sum = 0;
  for (const double lane : partial) sum += lane;
  for (; k < length; ++k) sum += static_cast<double>(a[k]) * static_cast<double>(b[k]);
  return sum;
}

// y += a x
template <class T>
void axpy(T a, const T* x, T* y, std::int64_t length) {
  for (std::int64_t k = 0; k < length; ++k) y[k] += a * x[k];
}

}  // namespace

void conv2d_forward_reference(CpuStream& stream, ConstView x, ConstView filter, ConstView bias, View y,
                              Conv2dOptions options) {
  const ConvSizes c(x.shape, filter.shape, y.shape, options);
  dispatch(kCpuFullTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, c.n * c.oh, item_grain(c.ow * c.o * c.kh * c.kw * c.group_inputs()),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     const T* image = x.as<T>() + row / c.oh * c.h * c.w * c.i;
                     for (std::int64_t ox = 0; ox < c.ow; ++ox) {
                       T* pixel = y.as<T>() + (row * c.ow + ox) * c.o;
                       for (std::int64_t o = 0; o < c.o; ++o) {
                         const T* taps = filter.as<T>() + o * c.kh * c.kw * c.group_inputs();
                         double sum = bias.data != nullptr ? static_cast<double>(bias.as<T>()[o]) : 0;
                         for_each_run(c, row % c.oh, ox, o / c.group_outputs(),
                                      [&](std::int64_t in, std::int64_t tap, std::int64_t length) {
                                        sum += dot(image + in, taps + tap, length);
                                      });
                         pixel[o] = static_cast<T>(options.relu && 0 > sum ? 0 : sum);  // NaN propagates
                       }
                     }
                   }
                 });
  });
}

// The transpose of forward: adds to dx[j] where forward reads x[j].
void conv2d_backward_data_reference(CpuStream& stream, ConstView dy, ConstView filter, GradView dx,
                                    Conv2dOptions options) {
  const ConvSizes c(dx.shape, filter.shape, dy.shape, options);
  dispatch(kCpuFullTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(
        stream, c.n, item_grain(c.oh * c.ow * c.o * c.kh * c.kw * c.group_inputs()),
        [&](std::int64_t begin, std::int64_t end) {
          const std::int64_t image_size = c.h * c.w * c.i, filter_size = c.kh * c.kw * c.group_inputs();
          if (dx.mode == GradMode::overwrite)
            std::fill(dx.as<T>() + begin * image_size, dx.as<T>() + end * image_size, T{0});
          for (std::int64_t row = begin * c.oh; row < end * c.oh; ++row) {
            T* image = dx.as<T>() + row / c.oh * image_size;
            for (std::int64_t ox = 0; ox < c.ow; ++ox) {
              const T* pixel = dy.as<T>() + (row * c.ow + ox) * c.o;
              for (std::int64_t group = 0; group < c.groups; ++group)
                for_each_run(c, row % c.oh, ox, group,
                             [&](std::int64_t in, std::int64_t tap, std::int64_t length) {
                               const std::int64_t first = group * c.group_outputs();
                               for (std::int64_t o = first; o < first + c.group_outputs(); ++o)
                                 axpy(pixel[o], filter.as<T>() + o * filter_size + tap, image + in, length);
                             });
            }
          }
        });
  });
}

void conv2d_backward_filter_reference(CpuStream& stream, ConstView dy, ConstView x, GradView dfilter,
                                      Conv2dOptions options) {
  const ConvSizes c(x.shape, dfilter.shape, dy.shape, options);
  dispatch(kCpuFullTypes, dfilter.dtype, [&](auto zero) {
    using T = decltype(zero);
    // Each thread owns a range of filters and reads every pixel.
    parallel_for(stream, c.o, item_grain(c.n * c.oh * c.ow * c.kh * c.kw * c.i),
                 [&](std::int64_t begin, std::int64_t end) {
                   const std::int64_t filter_size = c.kh * c.kw * c.group_inputs();
                   T* out = dfilter.as<T>();
                   if (dfilter.mode == GradMode::overwrite)
                     std::fill(out + begin * filter_size, out + end * filter_size, T{0});
                   for (std::int64_t row = 0; row < c.n * c.oh; ++row) {
                     const T* image = x.as<T>() + row / c.oh * c.h * c.w * c.i;
                     for (std::int64_t ox = 0; ox < c.ow; ++ox) {
                       const T* pixel = dy.as<T>() + (row * c.ow + ox) * c.o;
                       for (std::int64_t group = begin / c.group_outputs(); group * c.group_outputs() < end;
                            ++group) {
                         const std::int64_t first = std::max(begin, group * c.group_outputs());
                         const std::int64_t last = std::min(end, (group + 1) * c.group_outputs());
                         for_each_run(c, row % c.oh, ox, group,
                                      [&](std::int64_t in, std::int64_t tap, std::int64_t length) {
                                        for (std::int64_t o = first; o < last; ++o)
                                          axpy(pixel[o], image + in, out + o * filter_size + tap, length);
                                      });
                       }
                     }
                   }
                 });
  });
}

}  // namespace convoy::kernels

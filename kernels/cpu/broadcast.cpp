// kernels/broadcast.h on the CPU. Each innermost loop has strides of 0 or 1, which are known at compile time in
// the common cases, so that the compiler vectorizes them.
#include "convoy/kernels/broadcast.h"

#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/cpu/primitives/vector_math.h"
#include "convoy/kernels/shared/broadcast_functions.h"

namespace convoy::kernels {
namespace {

/// Calls f(count, offsets, inner strides) for each innermost loop over z and the inputs, in parallel.
template <class... X, class F>
void for_each_run(const CpuStream& stream, const View& z, F f, const X&... x) {
  constexpr int kArrays = 1 + sizeof...(X);
  const std::array<Strides, kArrays> strides{Strides::row_major(z.shape),
                                             Strides::broadcast(x.shape, z.shape)...};
  kernels::for_each_run<kArrays>(stream, z.shape, strides, f);
}

/// Computes z = f(x, y) or z += f(x, y) for one innermost loop.
template <GradMode kMode, class F, class Z, class X, class Y>
void map_run(std::int64_t count, F f, Z* z, const X* x, std::int64_t x_stride, const Y* y,
             std::int64_t y_stride) {
  if (x_stride == 1 && y_stride == 1) return map_range<kMode>(0, count, f, z, x, y);
  if (x_stride == 1 && y_stride == 0)
    return map_range<kMode>(
        0, count, [f, v = widened(*y)](auto u) { return f(u, v); }, z, x);
  if (x_stride == 0 && y_stride == 1)
    return map_range<kMode>(
        0, count, [f, u = widened(*x)](auto v) { return f(u, v); }, z, y);
  for (std::int64_t i = 0; i < count; ++i)
    put<kMode>(z[i], f(widened(x[i * x_stride]), widened(y[i * y_stride])));
}

/// Computes to = f(a, b, c), or +=, for inputs that are broadcast to the shape of `to`.
template <class T, class A, class F>
void map_three(const CpuStream& stream, F f, ConstView a, ConstView b, ConstView c, GradView to) {
  for_each_run(
      stream, to,
      [&](std::int64_t count, const auto& at, const auto& inner) {
        T* const out = to.as<T>() + at[0];
        const A* const first = a.as<A>() + at[1];
        const T *const second = b.as<T>() + at[2], *const third = c.as<T>() + at[3];
        with_mode(to.mode, [&]<GradMode kMode>() {
          if (inner[1] == 1 && inner[2] == 1 && inner[3] == 1)
            return map_range<kMode>(0, count, f, out, first, second, third);
          for (std::int64_t i = 0; i < count; ++i)
            put<kMode>(out[i], f(widened(first[i * inner[1]]), widened(second[i * inner[2]]),
                                 widened(third[i * inner[3]])));
        });
      },
      a, b, c);
}

}  // namespace

void binary(CpuStream& stream, BinaryOp op, ConstView x, ConstView y, GradView z) {
  if (!z.wanted()) return;
  dispatch(kCpuTypes, z.dtype, [&](auto zero) {
    using T = decltype(zero);
    dispatch_function<CpuMath>(op, [&](auto function) {
      for_each_run(
          stream, z,
          [&](std::int64_t count, const auto& at, const auto& inner) {
            with_mode(z.mode, [&]<GradMode kMode>() {
              map_run<kMode>(count, function, z.as<T>() + at[0], x.as<T>() + at[1], inner[1],
                             y.as<T>() + at[2], inner[2]);
            });
          },
          x, y);
    });
  });
}

void binary_backward(CpuStream& stream, BinaryGradient gradient, ConstView dz, ConstView x, ConstView y,
                     GradView dx) {
  if (!dx.wanted()) return;
  dispatch(kCpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    dispatch_function<CpuMath>(gradient,
                               [&](auto function) { map_three<T, T>(stream, function, dz, x, y, dx); });
  });
}

void where(CpuStream& stream, ConstView condition, ConstView x, ConstView y, GradView z) {
  if (!z.wanted()) return;
  dispatch(kCpuTypes, z.dtype, [&](auto zero) {
    const auto choose = [](std::uint8_t holds, auto u, auto v) { return holds != 0 ? u : v; };
    map_three<decltype(zero), std::uint8_t>(stream, choose, condition, x, y, z);
  });
}

}  // namespace convoy::kernels

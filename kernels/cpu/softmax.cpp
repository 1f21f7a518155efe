// kernels/softmax.h on the CPU, row by row. Sums are f64.
#include "convoy/kernels/softmax.h"

#include <cmath>

#include "convoy/kernels/cpu/primitives/map.h"

namespace convoy::kernels {
namespace {

constexpr std::int64_t kExpGrain = 1024;  // minimum number of exponentials per thread

/// Calls f(offset of the row, zero of the element type) for each row of a matrix, in parallel.
template <class F>
void for_each_row(const CpuStream& stream, const ConstView& matrix, F f) {
  const std::int64_t columns = matrix.shape[1];
  const std::int64_t grain = std::max<std::int64_t>(1, kExpGrain / std::max<std::int64_t>(columns, 1));
  dispatch(kCpuTypes, matrix.dtype, [&](auto zero) {
    parallel_for(stream, matrix.shape[0], grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) f(row * columns, zero);
    });
  });
}

/// The largest element of a row, and the sum of exp(x - largest).
struct Exponentials {
  double largest, sum = 0;

  template <class T>
  Exponentials(const T* x, std::int64_t n) : largest(widened(*first_largest(x, n))) {
    for (std::int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(widened(x[i])) - largest);
  }
};

}  // namespace

void softmax(CpuStream& stream, ConstView x, View y) {
  const std::int64_t n = x.shape[1];
  for_each_row(stream, x, [&](std::int64_t row, auto zero) {
    using T = decltype(zero);
    const Exponentials row_exp(x.as<T>() + row, n);
    const double factor = 1 / row_exp.sum;
    map_range<GradMode::overwrite>(
        0, n, [=, largest = row_exp.largest](double u) { return std::exp(u - largest) * factor; },
        y.as<T>() + row, x.as<T>() + row);
  });
}

void softmax_backward(CpuStream& stream, ConstView dy, ConstView y, GradView dx) {
  if (!dx.wanted()) return;
  const std::int64_t n = y.shape[1];
  for_each_row(stream, y, [&](std::int64_t row, auto zero) {
    using T = decltype(zero);
    const T *const d = dy.as<T>() + row, *const v = y.as<T>() + row;
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(widened(d[i])) * widened(v[i]);
    map_range(
        dx.mode, 0, n, [sum](double a, double b) { return b * (a - sum); }, dx.as<T>() + row, d, v);
  });
}

void log_softmax(CpuStream& stream, ConstView x, View y) {
  const std::int64_t n = x.shape[1];
  for_each_row(stream, x, [&](std::int64_t row, auto zero) {
    using T = decltype(zero);
    const Exponentials row_exp(x.as<T>() + row, n);
    // largest is subtracted first: x - largest is exact for close values, while their sum may round.
    map_range<GradMode::overwrite>(
        0, n,
        [largest = row_exp.largest, log_sum = std::log(row_exp.sum)](double u) {
          return u - largest - log_sum;
        },
        y.as<T>() + row, x.as<T>() + row);
  });
}

void log_softmax_backward(CpuStream& stream, ConstView dy, ConstView y, GradView dx) {
  if (!dx.wanted()) return;
  const std::int64_t n = y.shape[1];
  for_each_row(stream, y, [&](std::int64_t row, auto zero) {
    using T = decltype(zero);
    const T* const d = dy.as<T>() + row;
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(widened(d[i]));
    map_range(
        dx.mode, 0, n, [sum](double a, double b) { return a - std::exp(b) * sum; }, dx.as<T>() + row, d,
        y.as<T>() + row);
  });
}

}  // namespace convoy::kernels

// kernels/softmax.h on the CPU, row by row. Sums are f64.
#include "convoy/kernels/softmax.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"

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

// softmax_cross_entropy on the CPU, row by row. All arithmetic is f64. The row's largest logit is
// subtracted first: exp cannot overflow, and large logits that are almost equal lose no precision.

namespace {

constexpr std::int64_t kLossGrain = 1024;  // minimum number of exponentials per thread

/// Calls f(row, zero of the element type) for each row of a matrix [rows, classes], in parallel.
template <class F>
void for_each_sample(const CpuStream& stream, const ConstView& matrix, F f) {
  const std::int64_t grain =
      std::max<std::int64_t>(1, kLossGrain / std::max<std::int64_t>(matrix.shape[1], 1));
  dispatch(kCpuTypes, matrix.dtype, [&](auto zero) {
    parallel_for(stream, matrix.shape[0], grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) f(row, zero);
    });
  });
}

/// Returns the sum of exp(x[i] - offset) over n elements.
template <class T>
double sum_of_exp(const T* x, std::int64_t n, double offset) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(widened(x[i])) - offset);
  return sum;
}

}  // namespace

void softmax_cross_entropy_forward(CpuStream& stream, ConstView logits, ConstView labels,
                                   CrossEntropyOptions options, View losses, View log_sum_exp, View correct,
                                   View total, View correct_count) {
  const std::int64_t classes = logits.shape[1];
  const double smoothing = options.smoothing;
  for_each_sample(stream, logits, [&](std::int64_t row, auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const T* const x = logits.as<T>() + row * classes;
    const std::int32_t label = labels.as<std::int32_t>()[row];
    const T* const largest = first_largest(x, classes);
    const double offset = widened(*largest);
    const double log_sum = std::log(sum_of_exp(x, classes, offset));
    double expected = (1 - smoothing) * (widened(x[label]) - offset);  // sum of target_c (x_c - offset)
    if (smoothing > 0) {
      double sum = 0;
      for (std::int64_t c = 0; c < classes; ++c) sum += widened(x[c]) - offset;
      expected += smoothing / static_cast<double>(classes) * sum;
    }
    losses.as<C>()[row] = static_cast<C>(log_sum - expected);
    log_sum_exp.as<C>()[2 * row] = static_cast<C>(offset);
    log_sum_exp.as<C>()[2 * row + 1] = static_cast<C>(log_sum);
    correct.as<std::int32_t>()[row] = largest - x == label ? 1 : 0;
  });
  sum(stream, losses, GradView(total));
  scale(stream, total, options.scale, GradView(total));
  if (correct_count.data == nullptr) return;
  const auto* const of_row = correct.as<std::int32_t>();
  const auto count = std::accumulate(of_row, of_row + correct.numel(), std::int64_t{0});
  map(stream, GradView(correct_count), [count] { return static_cast<double>(count); });
}

void softmax_cross_entropy_backward(CpuStream& stream, ConstView dloss, ConstView logits, ConstView labels,
                                    ConstView log_sum_exp, CrossEntropyOptions options, GradView dlogits) {
  if (!dlogits.wanted()) return;
  const std::int64_t classes = logits.shape[1];
  for_each_sample(stream, logits, [&](std::int64_t row, auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const T* const x = logits.as<T>() + row * classes;
    T* const dx = dlogits.as<T>() + row * classes;
    const std::int32_t label = labels.as<std::int32_t>()[row];
    const double scale = static_cast<C>(options.scale) * *dloss.as<C>();
    const double largest = log_sum_exp.as<C>()[2 * row], log_sum = log_sum_exp.as<C>()[2 * row + 1];
    const double other_target = options.smoothing / static_cast<double>(classes);
    const auto gradient = [=](double target) {
      return [=](double u) { return scale * (std::exp(u - largest - log_sum) - target); };
    };
    map_range(dlogits.mode, 0, label, gradient(other_target), dx, x);
    map_range(dlogits.mode, label, label + 1, gradient(other_target + 1 - options.smoothing), dx, x);
    map_range(dlogits.mode, label + 1, classes, gradient(other_target), dx, x);
  });
}

}  // namespace convoy::kernels

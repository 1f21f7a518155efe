// kernels/softmax.h on the CPU, row by row. Sums are f64.
#include "convoy/kernels/softmax.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/shared/cross_entropy_targets.h"

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

/// Computes softmax, or log-softmax if kLog. The largest element is subtracted first: x - largest is exact for close values,
/// while a sum with it may round.
template <bool kLog>
void softmax_of_rows(CpuStream& stream, const ConstView& x, const View& y) {
  const std::int64_t n = x.shape[1];
  for_each_row(stream, x, [&](std::int64_t row, auto zero) {
    using T = decltype(zero);
    const Exponentials row_exp(x.as<T>() + row, n);
    const double factor = kLog ? std::log(row_exp.sum) : 1 / row_exp.sum;
    map_range<GradMode::overwrite>(
        0, n,
        [=, largest = row_exp.largest](double u) {
          return kLog ? u - largest - factor : std::exp(u - largest) * factor;
        },
        y.as<T>() + row, x.as<T>() + row);
  });
}

/// Computes the gradient of softmax, or of log-softmax if kLog.
template <bool kLog>
void gradient_of_rows(CpuStream& stream, const ConstView& dy, const ConstView& y, const GradView& dx) {
  if (!dx.wanted()) return;
  const std::int64_t n = y.shape[1];
  for_each_row(stream, y, [&](std::int64_t row, auto zero) {
    using T = decltype(zero);
    const T *const d = dy.as<T>() + row, *const v = y.as<T>() + row;
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i)
      sum += static_cast<double>(widened(d[i])) * (kLog ? 1 : widened(v[i]));
    map_range(
        dx.mode, 0, n, [sum](double a, double b) { return kLog ? a - std::exp(b) * sum : b * (a - sum); },
        dx.as<T>() + row, d, v);
  });
}

}  // namespace

void softmax(CpuStream& stream, ConstView x, View y) { softmax_of_rows<false>(stream, x, y); }

void softmax_backward(CpuStream& stream, ConstView dy, ConstView y, GradView dx) {
  gradient_of_rows<false>(stream, dy, y, dx);
}

void log_softmax(CpuStream& stream, ConstView x, View y) { softmax_of_rows<true>(stream, x, y); }

void log_softmax_backward(CpuStream& stream, ConstView dy, ConstView y, GradView dx) {
  gradient_of_rows<true>(stream, dy, y, dx);
}

// softmax_cross_entropy on the CPU, row by row. All arithmetic is f64. The row's largest logit is
// subtracted first: exp cannot overflow, and large logits that are almost equal lose no precision.

namespace {

/// Returns the sum of the targets of a row.
template <class C>
double sum_of_row(const CrossEntropyTargets<double, C>& targets, std::int64_t row) {
  if (targets.are_plain()) return 1;
  double sum = 0;
  for (std::int64_t c = 0; c < targets.classes; ++c) sum += targets(row, c);
  return sum;
}

}  // namespace

void softmax_cross_entropy_forward(CpuStream& stream, ConstView logits, const CrossEntropyTarget& target,
                                   View losses, View log_sum_exp, View correct, View total,
                                   View correct_count, View row_weights) {
  const std::int64_t classes = logits.shape[1];
  for_each_row(stream, logits, [&](std::int64_t first, auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const std::int64_t row = first / classes;
    const T* const x = logits.as<T>() + first;
    const CrossEntropyTargets<double, C> targets(target, classes);
    const Exponentials row_exp(x, classes);
    // An infinite sum makes the softmax 0 in the gradient of log-probabilities.
    const double offset = target.of_log_p ? 0 : row_exp.largest;
    const double log_sum = target.of_log_p ? HUGE_VAL : std::log(row_exp.sum);
    double expected =
        0;  // sum of target_c (x_c - offset); a logit of -infinity whose target is 0 does not affect it
    for (std::int64_t c = 0; c < classes; ++c)
      if (const double wanted = targets(row, c); wanted != 0) expected += wanted * (widened(x[c]) - offset);
    const double of_sum = target.of_log_p ? 0 : sum_of_row(targets, row) * log_sum;
    losses.as<C>()[row] = static_cast<C>(targets.ignores(row) ? 0 : of_sum - expected);
    log_sum_exp.as<C>()[2 * row] = static_cast<C>(offset);
    log_sum_exp.as<C>()[2 * row + 1] = static_cast<C>(log_sum);
    const auto index_of_largest = [classes](const auto* of) { return first_largest(of, classes) - of; };
    const std::int64_t label = targets.labels != nullptr
                                   ? targets.labels[row]
                                   : index_of_largest(targets.probabilities + row * classes);
    correct.as<std::int32_t>()[row] = index_of_largest(x) == label && !targets.ignores(row) ? 1 : 0;
    if (row_weights.data != nullptr) row_weights.as<C>()[row] = targets.weight(row);
  });
  sum(stream, losses, GradView(total));
  scale(stream, total, target.scale, GradView(total));
  if (correct_count.data == nullptr) return;
  const auto* const of_row = correct.as<std::int32_t>();
  const auto count = std::accumulate(of_row, of_row + correct.numel(), std::int64_t{0});
  map(stream, GradView(correct_count), [count] { return static_cast<double>(count); });
}

void softmax_cross_entropy_backward(CpuStream& stream, ConstView dloss, ConstView logits,
                                    const CrossEntropyTarget& target, ConstView log_sum_exp,
                                    GradView dlogits) {
  if (!dlogits.wanted()) return;
  const std::int64_t classes = logits.shape[1];
  for_each_row(stream, logits, [&](std::int64_t first, auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const std::int64_t row = first / classes;
    const T* const x = logits.as<T>() + first;
    T* const dx = dlogits.as<T>() + first;
    const CrossEntropyTargets<double, C> targets(target, classes);
    const double scale = static_cast<C>(target.scale) * dloss.as<C>()[dloss.numel() > 1 ? row : 0];
    const double largest = log_sum_exp.as<C>()[2 * row], log_sum = log_sum_exp.as<C>()[2 * row + 1];
    const double sum = sum_of_row(targets, row);
    for (std::int64_t c = 0; c < classes; ++c) {
      const double gradient =
          targets.ignores(row)
              ? 0
              : scale * (std::exp(widened(x[c]) - largest - log_sum) * sum - targets(row, c));
      map_range(
          dlogits.mode, c, c + 1, [=](auto) { return gradient; }, dx, x);
    }
  });
}

}  // namespace convoy::kernels

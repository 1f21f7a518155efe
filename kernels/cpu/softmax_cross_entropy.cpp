#include "kernels/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "kernels/runtime/parallel.h"

namespace convoy {
namespace {

/// Rows that are worth a thread of their own, for this many classes.
std::int64_t row_grain(std::int64_t classes) {
  return std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(1, classes));
}

/// log(sum exp(x)), about the largest, so that nothing overflows. In f64: the sum of many classes in f32
/// loses digits.
template <class T>
double log_sum_exp_of(const T* x, std::int64_t classes) {
  const double largest = static_cast<double>(*std::max_element(x, x + classes));
  double sum = 0;
  for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(x[c]) - largest);
  return largest + std::log(sum);
}

/// f(row) for every row, in parallel.
template <class F>
void for_rows(CpuStream& stream, const Shape& shape, const F& f) {
  parallel_for(stream, shape[0], row_grain(shape[1]), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) f(row);
  });
}

}  // namespace

void softmax_cross_entropy_forward(CpuStream& stream, ConstView logits, ConstView labels, double smoothing,
                                   View losses, View log_sum_exp, View correct) {
  const std::int64_t classes = logits.shape[1];
  dispatch_compute(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_rows(stream, logits.shape, [&](std::int64_t row) {
      const T* x = logits.as<T>() + row * classes;
      const std::int32_t label = labels.as<std::int32_t>()[row];
      const double normalizer = log_sum_exp_of(x, classes);
      double sum = 0;
      for (std::int64_t c = 0; c < classes; ++c) sum += static_cast<double>(x[c]);
      const double expected =
          (1 - smoothing) * static_cast<double>(x[label]) + smoothing / static_cast<double>(classes) * sum;
      losses.as<T>()[row] = static_cast<T>(normalizer - expected);
      log_sum_exp.as<T>()[row] = static_cast<T>(normalizer);
      correct.as<std::int32_t>()[row] = std::max_element(x, x + classes) - x == label ? 1 : 0;
    });
  });
}

void softmax_cross_entropy_backward(CpuStream& stream, ConstView dloss, ConstView logits, ConstView labels,
                                    ConstView log_sum_exp, double smoothing, GradView dlogits) {
  if (!dlogits.wanted()) return;
  const std::int64_t classes = logits.shape[1];
  dispatch_compute(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T factor = *dloss.as<T>();
    const T other = static_cast<T>(smoothing / static_cast<double>(classes));
    for_rows(stream, logits.shape, [&](std::int64_t row) {
      const T* x = logits.as<T>() + row * classes;
      T* dx = dlogits.as<T>() + row * classes;
      const T normalizer = log_sum_exp.as<T>()[row];
      const std::int32_t label = labels.as<std::int32_t>()[row];
      for (std::int64_t c = 0; c < classes; ++c) {
        const T target = c == label ? static_cast<T>(1 - smoothing) + other : other;
        const T gradient = factor * (std::exp(x[c] - normalizer) - target);
        dx[c] = dlogits.mode == Mode::write ? gradient : dx[c] + gradient;
      }
    });
  });
}

void softmax(CpuStream& stream, ConstView x, View y) {
  const std::int64_t classes = x.shape[1];
  dispatch_compute(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_rows(stream, x.shape, [&](std::int64_t row) {
      const T* in = x.as<T>() + row * classes;
      const double normalizer = log_sum_exp_of(in, classes);
      for (std::int64_t c = 0; c < classes; ++c)
        y.as<T>()[row * classes + c] = static_cast<T>(std::exp(static_cast<double>(in[c]) - normalizer));
    });
  });
}

}  // namespace convoy

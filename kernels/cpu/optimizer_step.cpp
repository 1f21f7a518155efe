// Optimizer steps on the CPU: all parameters of a group are one long array, cut into a piece for each thread.
#include "kernels/optimizer_step.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/map.h"

namespace convoy {
namespace {

/// Calls f(slot, begin, end) for the range of each slot's elements that lies in a thread's piece of them all.
template <class Slot, class F>
void for_each_range(const CpuStream& stream, std::span<const Slot> slots, F f) {
  std::int64_t total = 0;
  for (const Slot& slot : slots) total += slot.parameter.numel();
  parallel_for(stream, total, kElementGrain, [&](std::int64_t piece_begin, std::int64_t piece_end) {
    std::int64_t offset = 0;  // of the slot's first element among all
    for (const Slot& slot : slots) {
      const std::int64_t numel = slot.parameter.numel();
      const std::int64_t begin = std::max<std::int64_t>(piece_begin - offset, 0);
      const std::int64_t end = std::min(piece_end - offset, numel);
      if (begin < end) f(slot, begin, end);
      offset += numel;
    }
  });
}

double value_or_one(const ConstView& scale) { return scale.data != nullptr ? *scale.as<double>() : 1; }

/// Constants in the element type, so that a float loop stays one of floats.
template <class T>
struct Sgd {
  T grad_scale, lr, momentum, weight_decay;

  Sgd(const SgdOptions& options, double scale)
      : grad_scale(static_cast<T>(scale)),
        lr(static_cast<T>(options.lr)),
        momentum(static_cast<T>(options.momentum)),
        weight_decay(static_cast<T>(options.weight_decay)) {}

  void plain(std::int64_t begin, std::int64_t end, T* p, const T* grad) const {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) p[i] -= lr * (grad_scale * grad[i] + weight_decay * p[i]);
  }

  template <bool kNesterov>
  void with_momentum(std::int64_t begin, std::int64_t end, T* p, const T* grad, T* m) const {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      const T g = grad_scale * grad[i] + weight_decay * p[i];
      m[i] = momentum * m[i] + g;
      p[i] -= lr * (kNesterov ? g + momentum * m[i] : m[i]);
    }
  }
};

template <class T>
struct Adam {
  T grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
  T step_size, inverse_root_correction2;  // lr / (1 - beta1^step), 1 / sqrt(1 - beta2^step)
  T joined_decay, kept;                   // the two kinds of weight decay: g += joined_decay p;  p *= kept

  Adam(const AdamOptions& options, double scale)
      : grad_scale(static_cast<T>(scale)),
        beta1(static_cast<T>(options.beta1)),
        one_minus_beta1(static_cast<T>(1 - options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        one_minus_beta2(static_cast<T>(1 - options.beta2)),
        epsilon(static_cast<T>(options.epsilon)),
        step_size(static_cast<T>(options.lr / (1 - std::pow(options.beta1, options.step)))),
        inverse_root_correction2(static_cast<T>(1 / std::sqrt(1 - std::pow(options.beta2, options.step)))),
        joined_decay(static_cast<T>(options.decoupled ? 0 : options.weight_decay)),
        kept(static_cast<T>(options.decoupled ? 1 - options.lr * options.weight_decay : 1)) {}

  void update(std::int64_t begin, std::int64_t end, T* p, const T* grad, T* m, T* v) const {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      const T g = grad_scale * grad[i] + joined_decay * p[i];
      m[i] = beta1 * m[i] + one_minus_beta1 * g;
      v[i] = beta2 * v[i] + one_minus_beta2 * g * g;
      p[i] = kept * p[i] - step_size * m[i] / (std::sqrt(v[i]) * inverse_root_correction2 + epsilon);
    }
  }
};

}  // namespace

void sgd_step(CpuStream& stream, std::span<const SgdSlot> slots, ConstView grad_scale, SgdOptions options) {
  for_each_range(stream, slots, [&](const SgdSlot& slot, std::int64_t begin, std::int64_t end) {
    dispatch_compute(slot.parameter.dtype, [&](auto zero) {
      using T = decltype(zero);
      const Sgd<T> sgd(options, value_or_one(grad_scale));
      T* const p = slot.parameter.as<T>();
      const T* const grad = slot.gradient.as<T>();
      T* const m = slot.momentum.as<T>();
      if (m == nullptr) return sgd.plain(begin, end, p, grad);
      if (options.nesterov) return sgd.template with_momentum<true>(begin, end, p, grad, m);
      sgd.template with_momentum<false>(begin, end, p, grad, m);
    });
  });
}

void adam_step(CpuStream& stream, std::span<const AdamSlot> slots, ConstView grad_scale,
               AdamOptions options) {
  for_each_range(stream, slots, [&](const AdamSlot& slot, std::int64_t begin, std::int64_t end) {
    dispatch_compute(slot.parameter.dtype, [&](auto zero) {
      using T = decltype(zero);
      Adam<T>(options, value_or_one(grad_scale))
          .update(begin, end, slot.parameter.as<T>(), slot.gradient.as<T>(), slot.first_moment.as<T>(),
                  slot.second_moment.as<T>());
    });
  });
}

void clip_coefficient(CpuStream&, ConstView norm, double max_norm, View coefficient) {
  const double wanted = max_norm / (*norm.as<double>() + 1e-6);
  *coefficient.as<double>() = wanted > 1 ? 1 : wanted;  // in this order NaN stays NaN
}

}  // namespace convoy

// Optimizer steps on the CPU: all parameters of a group are one long array, cut into a piece for each thread.
#include "kernels/optimizer_step.h"

#include <algorithm>
#include <cmath>

#include "kernels/convert.h"
#include "kernels/cpu/map.h"
#include "kernels/optimizer_update.h"

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

/// update(scaled gradient, p, its states…) for each element.
template <class T, class Update, class... State>
void update_range(std::int64_t begin, std::int64_t end, Update update, T grad_scale, const T* grad, T* p,
                  State*... states) {
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) update(grad_scale * grad[i], p[i], states[i]...);
}

template <class T>
void round_range(std::int64_t begin, std::int64_t end, const T* p, const View& half_copy) {
  const auto round_to = [&](auto zero) {
    using Half = decltype(zero);
    map_range<Mode::write>(begin, end, converted<Half, T>, half_copy.as<Half>(), p);
  };
  if (half_copy.dtype == DType::f16) return round_to(float16{});
  round_to(bfloat16{});
}

/// One pass over a range: with a half copy, in blocks that are still in the cache when they are rounded.
template <class T, class Slot, class Update, class... State>
void step_range(std::int64_t begin, std::int64_t end, const Slot& slot, Update update, T grad_scale,
                State*... states) {
  constexpr std::int64_t kCached = 2048;  // elements: of four arrays of f64, 64 KB
  const bool rounds = slot.half_copy.data != nullptr;
  const std::int64_t block = rounds ? kCached : end - begin;
  for (; begin < end; begin += block) {
    const std::int64_t block_end = std::min(begin + block, end);
    T* const p = slot.parameter.template as<T>();
    update_range(begin, block_end, update, grad_scale, slot.gradient.template as<T>(), p, states...);
    if (rounds) round_range(begin, block_end, p, slot.half_copy);
  }
}

}  // namespace

void sgd_step(CpuStream& stream, std::span<const SgdSlot> slots, const StepScalars& scalars,
              SgdOptions options) {
  const StepPointers step(scalars);
  if (step.skipped()) return;
  for_each_range(stream, slots, [&](const SgdSlot& slot, std::int64_t begin, std::int64_t end) {
    dispatch_compute(slot.parameter.dtype, [&](auto zero) {
      using T = decltype(zero);
      const T scale = static_cast<T>(step.gradient_factor());
      T* const m = slot.momentum.as<T>();
      if (m == nullptr) return step_range(begin, end, slot, SgdUpdate<T>(options, step), scale);
      if (options.nesterov)
        return step_range(begin, end, slot, MomentumUpdate<T, true>(options, step), scale, m);
      step_range(begin, end, slot, MomentumUpdate<T, false>(options, step), scale, m);
    });
  });
}

void adam_step(CpuStream& stream, std::span<const AdamSlot> slots, const StepScalars& scalars,
               AdamOptions options) {
  const StepPointers step(scalars);
  if (step.skipped()) return;
  for_each_range(stream, slots, [&](const AdamSlot& slot, std::int64_t begin, std::int64_t end) {
    dispatch_compute(slot.parameter.dtype, [&](auto zero) {
      using T = decltype(zero);
      step_range(begin, end, slot, AdamUpdate<T>(options, step), static_cast<T>(step.gradient_factor()),
                 slot.first_moment.as<T>(), slot.second_moment.as<T>());
    });
  });
}

void count_update(CpuStream&, ConstView skip, View steps) {
  if (skip.data == nullptr || *skip.as<std::int32_t>() == 0) *steps.as<double>() += 1;
}

void clip_coefficient(CpuStream&, ConstView norm, double max_norm, ConstView loss_scale, View coefficient) {
  dispatch_compute(loss_scale.dtype, [&](auto zero) {
    *coefficient.as<double>() =
        clip_coefficient_of(norm.as<double>(), max_norm, loss_scale.as<decltype(zero)>());
  });
}

}  // namespace convoy

// kernels/optimizer_step.h on the CPU: the parameters of a group are treated as one long array, which is
// split into one contiguous piece per thread.
#include "convoy/kernels/optimizer_step.h"

#include <algorithm>
#include <cmath>

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/shared/optimizer_update.h"

namespace convoy::kernels {
namespace {

/// Splits the concatenated elements of all slots into pieces, and calls f(slot, begin, end) in parallel for
/// the range of each slot's elements within each piece.
template <class Slot, class F>
void for_each_range(const CpuStream& stream, std::span<const Slot> slots, F f) {
  std::int64_t total = 0;
  for (const Slot& slot : slots) total += slot.parameter.numel();
  parallel_for(stream, total, kElementGrain, [&](std::int64_t piece_begin, std::int64_t piece_end) {
    std::int64_t offset = 0;  // index of the slot's first element in the concatenation
    for (const Slot& slot : slots) {
      const std::int64_t numel = slot.parameter.numel();
      const std::int64_t begin = std::max<std::int64_t>(piece_begin - offset, 0);
      const std::int64_t end = std::min(piece_end - offset, numel);
      if (begin < end) f(slot, begin, end);
      offset += numel;
    }
  });
}

/// Calls update(scaled gradient, p[i], states[i]…) for each element i of [begin, end).
template <class T, class Update, class... State>
void update_range(std::int64_t begin, std::int64_t end, Update update, T grad_scale, const T* grad, T* p,
                  State*... states) {
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) update(grad_scale * grad[i], p[i], states[i]...);
}

/// Rounds p[begin, end) to the low-precision copy.
template <class T>
void round_range(std::int64_t begin, std::int64_t end, const T* p, const View& low_precision_copy) {
  const auto round_to = [&](auto zero) {
    using Half = decltype(zero);
    map_range<GradMode::overwrite>(begin, end, converted<Half, T>, low_precision_copy.as<Half>(), p);
  };
  if (low_precision_copy.dtype == DType::f16) return round_to(float16{});
  round_to(bfloat16{});
}

/// Steps the elements [begin, end). If there is a low-precision copy, works in blocks that are still in the
/// cache when they are rounded.
template <class T, class Slot, class Update, class... State>
void step_range(std::int64_t begin, std::int64_t end, const Slot& slot, Update update, T grad_scale,
                State*... states) {
  constexpr std::int64_t kCached = 2048;  // elements; four f64 arrays of them take 64 KiB
  const bool rounds = slot.low_precision_copy.data != nullptr;
  const std::int64_t block = rounds ? kCached : end - begin;
  for (; begin < end; begin += block) {
    const std::int64_t block_end = std::min(begin + block, end);
    T* const p = slot.parameter.template as<T>();
    update_range(begin, block_end, update, grad_scale, slot.gradient.template as<T>(), p, states...);
    if (rounds) round_range(begin, block_end, p, slot.low_precision_copy);
  }
}

}  // namespace

void sgd_step(CpuStream& stream, std::span<const SgdSlot> slots, const StepScalars& scalars,
              SgdOptions options) {
  const StepPointers step(scalars);
  if (step.skipped()) return;
  for_each_range(stream, slots, [&](const SgdSlot& slot, std::int64_t begin, std::int64_t end) {
    dispatch(kCpuFullTypes, slot.parameter.dtype, [&](auto zero) {
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
    dispatch(kCpuFullTypes, slot.parameter.dtype, [&](auto zero) {
      using T = decltype(zero);
      step_range(begin, end, slot, AdamUpdate<T>(options, step), static_cast<T>(step.gradient_factor()),
                 slot.first_moment.as<T>(), slot.second_moment.as<T>());
    });
  });
}

void count_step(CpuStream&, ConstView skip, View steps) {
  if (skip.data == nullptr || *skip.as<std::int32_t>() == 0) *steps.as<double>() += 1;
}

void clip_coefficient(CpuStream&, ConstView norm, double max_norm, ConstView loss_scale, View coefficient) {
  dispatch(kCpuFullTypes, loss_scale.dtype, [&](auto zero) {
    *coefficient.as<double>() =
        clip_coefficient_of(norm.as<double>(), max_norm, loss_scale.as<decltype(zero)>());
  });
}

}  // namespace convoy::kernels

// kernels/optimizer_step.h on the CPU: SGD and Adam treat the parameters of all groups as one long array, which is
// split into one contiguous piece per thread.
#include "convoy/kernels/optimizer_step.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/cpu/primitives/element.h"
#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/shared/optimizer_update.h"

namespace convoy::kernels {
namespace {

/// Splits the concatenated elements of all slots into pieces, and calls f(options, slot, begin, end) in
/// parallel for the range of each slot's elements within each piece.
template <class Group, class F>
void for_each_range(const CpuStream& stream, const std::vector<Group>& groups, F f) {
  std::int64_t total = 0;
  for (const Group& group : groups)
    for (const auto& slot : group.slots) total += slot.parameter.numel();
  parallel_for(stream, total, kElementGrain, [&](std::int64_t piece_begin, std::int64_t piece_end) {
    std::int64_t offset = 0;  // index of the slot's first element in the concatenation
    for (const Group& group : groups)
      for (const auto& slot : group.slots) {
        const std::int64_t numel = slot.parameter.numel();
        const std::int64_t begin = std::max<std::int64_t>(piece_begin - offset, 0);
        const std::int64_t end = std::min(piece_end - offset, numel);
        if (begin < end) f(group.options, slot, begin, end);
        offset += numel;
      }
  });
}

/// Calls update(scaled gradient, p[i], states[i]…) for each element i of [begin, end).
template <class T, class Gradient, class Update, class... State>
void update_range(std::int64_t begin, std::int64_t end, Update update, T grad_scale, const Gradient* grad,
                  T* p, State*... states) {
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i)
    update(grad_scale * static_cast<T>(widened(grad[i])), p[i], states[i]...);
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
  T* const p = slot.parameter.template as<T>();
  const auto step_with = [&](const auto* gradient) {
    for (; begin < end; begin += block) {
      const std::int64_t block_end = std::min(begin + block, end);
      update_range(begin, block_end, update, grad_scale, gradient, p, states...);
      if (rounds) round_range(begin, block_end, p, slot.low_precision_copy);
    }
  };
  const ConstView& gradient = slot.gradient;
  if (gradient.dtype == DType::f16) return step_with(gradient.template as<float16>());
  if (gradient.dtype == DType::bf16) return step_with(gradient.template as<bfloat16>());
  step_with(gradient.template as<T>());
}

/// Counts a step, for all groups and for those with their own numbers of steps.
template <class Group>
void count_step(const std::vector<Group>& groups, const StepPointers& pointers) {
  for (const Group& group : groups)
    if (double* const counter = pointers.counter(group.options); counter != pointers.steps) ++*counter;
  ++*pointers.steps;
}

/// Calls step(options, slot, begin, end, zero, number of this step) for each range of elements of f32 or f64,
/// whose type is that of `zero`, and counts the step. A skipped step does nothing.
template <class Group, class F>
void step_groups(const CpuStream& stream, const std::vector<Group>& groups, const StepScalars& scalars,
                 F step) {
  const StepPointers pointers(scalars);
  if (pointers.skipped()) return;
  for_each_range(
      stream, groups, [&](const auto& options, const auto& slot, std::int64_t begin, std::int64_t end) {
        dispatch(kCpuFullTypes, slot.parameter.dtype,
                 [&](auto zero) { step(options, slot, begin, end, zero, *pointers.counter(options) + 1); });
      });
  count_step(groups, pointers);
}

}  // namespace

void sgd_step(CpuStream& stream, const std::vector<SgdGroup>& groups, const StepScalars& scalars) {
  const StepPointers pointers(scalars);
  step_groups(stream, groups, scalars,
              [&](const SgdOptions& options, const SgdSlot& slot, std::int64_t begin, std::int64_t end,
                  auto zero, double number) {
                using T = decltype(zero);
                const T scale = static_cast<T>(pointers.gradient_factor());
                const SgdCoefficients<T> by(options, pointers.lr[options.rate], number);
                T* const m = slot.momentum.template as<T>();
                if (m == nullptr) return step_range(begin, end, slot, SgdUpdate<T>{by}, scale);
                if (options.nesterov)
                  return step_range(begin, end, slot, MomentumUpdate<T, true>{by}, scale, m);
                step_range(begin, end, slot, MomentumUpdate<T, false>{by}, scale, m);
              });
}

void adam_step(CpuStream& stream, const std::vector<AdamGroup>& groups, const StepScalars& scalars) {
  const StepPointers pointers(scalars);
  step_groups(stream, groups, scalars,
              [&](const AdamOptions& options, const AdamSlot& slot, std::int64_t begin, std::int64_t end,
                  auto zero, double number) {
                using T = decltype(zero);
                const AdamCoefficients<T> by(options, pointers.lr[options.rate], number);
                const auto run = [&](auto update) {
                  step_range(begin, end, slot, update, static_cast<T>(pointers.gradient_factor()),
                             slot.first_moment.template as<T>(), slot.second_moment.template as<T>());
                };
                options.rms_prop ? run(RmsPropUpdate<T>{by}) : run(AdamUpdate<T>{by});
              });
}

void clip_coefficient(CpuStream&, ConstView norm, double max_norm, ConstView loss_scale, View coefficient) {
  dispatch(kCpuFullTypes, loss_scale.dtype, [&](auto zero) {
    *coefficient.as<double>() =
        clip_coefficient_of(norm.as<double>(), max_norm, loss_scale.as<decltype(zero)>());
  });
}

void update_loss_scale(CpuStream&, ConstView non_finite, const LossScaleView& state,
                       LossScaleOptions options) {
  dispatch(kCpuFullTypes, state.scale.dtype, [&](auto zero) {
    LossScaleNumbers<decltype(zero)>(state).update(*non_finite.as<std::int32_t>() != 0, options);
  });
}

}  // namespace convoy::kernels

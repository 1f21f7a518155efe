// kernels/layerwise_step.h on the CPU, one parameter after the other: a pass for the norms, then one for the step.
#include "convoy/kernels/layerwise_step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/shared/layerwise_update.h"
#include "convoy/kernels/shared/optimizer_update.h"

namespace convoy::kernels {
namespace {

constexpr std::int64_t kPiece = 4096;  // elements whose squares are added up by one thread

/// Calls f(gradient) with the gradient's elements; T is the parameter's type.
template <class T, class F>
void with_gradient(const ConstView& gradient, F f) {
  if (gradient.dtype == DType::f16) return f(gradient.as<float16>());
  if (gradient.dtype == DType::bf16) return f(gradient.as<bfloat16>());
  f(gradient.as<T>());
}

/// The pass for the norms. Returns the trust ratio.
template <class T, class Update, class Gradient, class... State>
double measure(CpuStream& stream, const LayerwiseSlot& slot, const Update& update, T grad_scale,
               const Gradient* gradient, State*... states) {
  const std::int64_t numel = slot.parameter.numel(), pieces = (numel + kPiece - 1) / kPiece;
  const T* const p = slot.parameter.as<T>();
  std::vector<LayerSquares> squares(static_cast<std::size_t>(pieces));
  parallel_for(stream, pieces, kElementGrain / kPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece)
      for (std::int64_t i = piece * kPiece; i < std::min(numel, (piece + 1) * kPiece); ++i) {
        const T number =
            update.measured(grad_scale * static_cast<T>(widened(gradient[i])), p[i], states[i]...);
        squares[static_cast<std::size_t>(piece)].add(p[i], number);
      }
  });
  LayerSquares sum;
  for (const LayerSquares& piece : squares) {
    sum.parameter += piece.parameter;
    sum.measured += piece.measured;
  }
  return slot.adapts ? sum.trust_ratio(update) : 1;
}

template <class T, class Update, class... State>
void step_slot(CpuStream& stream, const LayerwiseSlot& slot, const Update& update, T grad_scale,
               State*... states) {
  T* const p = slot.parameter.as<T>();
  with_gradient<T>(slot.gradient, [&](const auto* gradient) {
    const bool measures = slot.adapts || Update::kMeasureWrites;
    const auto ratio =
        static_cast<T>(measures ? measure(stream, slot, update, grad_scale, gradient, states...) : 1);
    parallel_for(stream, slot.parameter.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i)
        update.apply(grad_scale * static_cast<T>(widened(gradient[i])), p[i], states[i]..., ratio);
    });
  });
  if (slot.low_precision_copy.data != nullptr) cast(stream, slot.parameter, slot.low_precision_copy);
}

/// Steps all slots with Update<T>, and counts the step. A skipped step does nothing.
template <template <class> class Update, class Group>
void step_groups(CpuStream& stream, const std::vector<Group>& groups, const StepScalars& scalars) {
  const StepPointers pointers(scalars);
  if (pointers.skipped()) return;
  const double number = *pointers.steps + 1;
  for (const Group& group : groups)
    for (const LayerwiseSlot& slot : group.slots)
      dispatch(kCpuFullTypes, slot.parameter.dtype, [&](auto zero) {
        using T = decltype(zero);
        const Update<T> update(group.options, pointers.lr[group.options.rate], number);
        [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
          step_slot<T>(stream, slot, update, static_cast<T>(pointers.gradient_factor()),
                       slot.states[kIndex].template as<T>()...);
        }
        (std::make_index_sequence<Update<T>::kStates>{});
      });
  *pointers.steps = number;
}

}  // namespace

void lars_step(CpuStream& stream, const std::vector<LarsGroup>& groups, const StepScalars& scalars) {
  step_groups<LarsUpdate>(stream, groups, scalars);
}

void lamb_step(CpuStream& stream, const std::vector<LambGroup>& groups, const StepScalars& scalars) {
  step_groups<LambUpdate>(stream, groups, scalars);
}

}  // namespace convoy::kernels

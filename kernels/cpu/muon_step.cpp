// kernels/muon_step.h on the CPU, one parameter after the other.
#include "convoy/kernels/muon_step.h"

#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/shared/optimizer_update.h"

namespace convoy::kernels {
namespace {

/// Calls f(slot, its options, its index among all slots, zero of the parameter's type) for each slot.
template <class F>
void for_each_slot(const std::vector<MuonGroup>& groups, F f) {
  std::size_t index = 0;
  for (const MuonGroup& group : groups)
    for (const MuonSlot& slot : group.slots) {
      dispatch(kCpuFullTypes, slot.parameter.dtype, [&](auto zero) { f(slot, group.options, index, zero); });
      ++index;
    }
}

double norm_of(CpuStream& stream, ConstView x) {
  double norm = 0;
  global_norm(stream, {&x, 1}, View{&norm, {1}, DType::f64});
  return norm;
}

/// Updates the momentum and stores the direction, which is not divided by its norm yet.
template <class T>
void store_direction(const CpuStream& stream, const MuonSlot& slot, const MuonDirection<T>& by) {
  T* const momentum = slot.momentum.as<T>();
  T* const direction = slot.direction.as<T>();
  const auto store_with = [&](const auto* gradient) {
    parallel_for(stream, slot.parameter.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        const auto g = static_cast<T>(widened(gradient[i]));
        momentum[i] = by.next_momentum(g, momentum[i]);
        direction[i] = by.direction(g, momentum[i]);
      }
    });
  };
  if (slot.gradient.dtype == DType::f16) return store_with(slot.gradient.as<float16>());
  if (slot.gradient.dtype == DType::bf16) return store_with(slot.gradient.as<bfloat16>());
  store_with(slot.gradient.as<T>());
}

}  // namespace

void muon_direction(CpuStream& stream, const std::vector<MuonGroup>& groups, const StepScalars& scalars,
                    View keep) {
  const StepPointers pointers(scalars);
  for_each_slot(groups, [&](const MuonSlot& slot, const MuonOptions& options, std::size_t index, auto zero) {
    using T = decltype(zero);
    if (pointers.skipped()) {
      keep.as<double>()[index] = 1;
      return fill(stream, 0, slot.direction);
    }
    store_direction<T>(stream, slot,
                       {.grad_scale = static_cast<T>(pointers.gradient_factor()),
                        .momentum = static_cast<T>(options.momentum),
                        .nesterov = options.nesterov});
    scale(stream, slot.direction, muon_inverse_norm(norm_of(stream, slot.direction)),
          GradView(slot.direction));
    const MuonKeep keeps(slot, options);
    keep.as<double>()[index] =
        keeps.factor(pointers.lr[options.rate], options.normalize ? norm_of(stream, slot.parameter) : 0);
  });
}

void muon_update(CpuStream& stream, const std::vector<MuonGroup>& groups, const StepScalars& scalars,
                 ConstView keep) {
  const StepPointers pointers(scalars);
  if (pointers.skipped()) return;
  for_each_slot(groups, [&](const MuonSlot& slot, const MuonOptions& options, std::size_t index, auto) {
    add(stream, slot.parameter, slot.direction, slot.parameter, keep.as<double>()[index],
        -pointers.lr[options.rate] * options.lr_scale * slot.scale);
    if (slot.low_precision_copy.data != nullptr) cast(stream, slot.parameter, slot.low_precision_copy);
  });
}

}  // namespace convoy::kernels

// What the kernels of several optimizers have in common: the coefficients of each group, which one launch
// computes before those that step the parameters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/cuda/primitives/early_start.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/shared/optimizer_update.h"

namespace convoy::kernels::cuda {

inline constexpr int kMaxGroups =
    64;  // per launch of prepare_kernel(); Adam's options of this many take 3 KiB

/// The coefficients of a group's step, for parameters of f32 and of f64.
template <class Float, class Double>
struct Step {
  using Options = typename Float::Options;
  Float f32;
  Double f64;
  float f32_grad_scale;
  double f64_grad_scale;
  bool skipped;

  __device__ Step(const Options& options, const StepPointers& scalars, double number)
      : f32(options, scalars.lr[options.rate], number),
        f64(options, scalars.lr[options.rate], number),
        f32_grad_scale(static_cast<float>(scalars.gradient_factor())),
        f64_grad_scale(scalars.gradient_factor()),
        skipped(scalars.skipped()) {}

  template <class T>
  __device__ const auto& of() const {
    if constexpr (std::is_same_v<T, float>)
      return f32;
    else
      return f64;
  }
  template <class T>
  __device__ T grad_scale() const {
    if constexpr (std::is_same_v<T, float>)
      return f32_grad_scale;
    else
      return f64_grad_scale;
  }
};

template <class Options>
struct OptionsTable {
  Options groups[kMaxGroups];
  int count;
};

/// Computes the coefficients of each group, one thread per group, and counts the step if `counts`, and always
/// for groups with their own numbers of steps. The powers and roots in f64 would cost each thread that steps
/// elements more than these do, and would take registers from a memory-bound kernel.
template <class Step>
__global__ void __launch_bounds__(kMaxGroups)
    prepare_kernel(StepPointers scalars, const OptionsTable<typename Step::Options> options, bool counts,
                   Step* steps) {
  allow_next_kernel();
  wait_for_previous_kernel();
  const double number = *scalars.steps + 1;
  const auto group = static_cast<int>(threadIdx.x);
  if (group < options.count) {
    double* const counter = scalars.counter(options.groups[group]);
    const bool has_own = counter != scalars.steps;
    const double own = has_own ? *counter + 1 : number;
    steps[group] = Step(options.groups[group], scalars, own);
    if (has_own && !scalars.skipped()) *counter = own;
  }
  __syncthreads();  // every thread has read *scalars.steps
  if (counts && group == 0 && !scalars.skipped()) *scalars.steps = number;
}

/// Enqueues the preparation of a step, and holds its result while the kernels that read it are enqueued.
template <class Step>
class PreparedStep {
 public:
  template <class Group>
  PreparedStep(CudaStream& stream, const std::vector<Group>& groups, const StepScalars& scalars)
      : memory_(stream, std::max<std::size_t>(groups.size(), 1) * sizeof(Step)) {
    std::size_t done = 0;
    do {  // at least one launch, which counts the step
      OptionsTable<typename Step::Options> table{};
      const std::size_t first = done;
      for (; done < groups.size() && table.count < kMaxGroups; ++done)
        table.groups[table.count++] = groups[done].options;
      launch(LaunchStart::early, stream, 1, kMaxGroups, 0, prepare_kernel<Step>, StepPointers(scalars), table,
             done == groups.size(), memory_.as<Step>() + first);
    } while (done < groups.size());
  }

  /// Returns the coefficients by group, in device memory. They are valid as long as this object.
  const Step* steps() const { return memory_.as<Step>(); }

 private:
  Scratch memory_;
};

/// Calls f(slot, group's options, group's index) for each slot.
template <class Group, class F>
void for_each_slot(const std::vector<Group>& groups, F f) {
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const auto& slot : groups[g].slots) f(slot, groups[g].options, g);
}

/// Throws UsageError unless all parameters are f32 or f64.
template <class Group>
void check_types(const std::vector<Group>& groups) {
  for_each_slot(groups, [](const auto& slot, const auto&, std::size_t) {
    dispatch(kGpuFullTypes, slot.parameter.dtype, [](auto) {});
  });
}

// How the kernels of optimizers read gradients and write low-precision copies, whose types are known at run
// time only.

/// Loads a pack from index `at` on, and converts it to T.
template <class T, int kWidth, class From>
__device__ Pack<T, kWidth> load_converted(const void* from, std::int64_t at, bool is_aligned = true) {
  const auto in = load_pack<kWidth>(static_cast<const From*>(from) + at, is_aligned);
  Pack<T, kWidth> out;
  for (int i = 0; i < kWidth; ++i) out.values[i] = static_cast<T>(widen(in.values[i]));
  return out;
}

/// Loads a pack of a gradient of type bf16, f16 or T.
template <class T, int kWidth>
__device__ Pack<T, kWidth> load_gradient(const void* gradient, DType dtype, std::int64_t at,
                                         bool is_aligned = true) {
  if (dtype == DType::bf16) return load_converted<T, kWidth, bfloat16>(gradient, at, is_aligned);
  if (dtype == DType::f16) return load_converted<T, kWidth, float16>(gradient, at, is_aligned);
  return load_converted<T, kWidth, T>(gradient, at, is_aligned);
}

/// Stores a pack in a low-precision copy, rounded to Half.
template <class Half, class T, int kWidth>
__device__ void store_rounded(void* low_precision_copy, std::int64_t at, const Pack<T, kWidth>& from,
                              bool is_aligned = true) {
  Pack<Half, kWidth> out;
  for (int i = 0; i < kWidth; ++i) out.values[i] = converted<Half>(from.values[i]);
  store_pack(static_cast<Half*>(low_precision_copy) + at, out, is_aligned);
}

/// Stores a pack in a low-precision copy of type f16 or bf16. Does nothing if there is no copy.
template <class T, int kWidth>
__device__ void store_copy(void* low_precision_copy, DType dtype, std::int64_t at,
                           const Pack<T, kWidth>& from, bool is_aligned = true) {
  if (low_precision_copy == nullptr) return;
  if (dtype == DType::f16) {
    store_rounded<float16>(low_precision_copy, at, from, is_aligned);
  } else {
    store_rounded<bfloat16>(low_precision_copy, at, from, is_aligned);
  }
}

}  // namespace convoy::kernels::cuda

// kernels/optimizer_step.h on the GPU. One launch prepares the coefficients of all groups, and each further
// one steps dozens of parameters (82 with momentum, 70 with Adam). Each byte is read once and written once:
// 20 bytes per f32 element with momentum, 28 with Adam, 2 more for a low-precision copy, and 2 less if the
// gradient is f16 or bf16.
#include "convoy/kernels/optimizer_step.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "convoy/kernels/cuda/optimizer/prepared_step.h"
#include "convoy/kernels/cuda/primitives/early_start.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/cuda/primitives/multi_tensor.h"
#include "convoy/kernels/shared/optimizer_update.h"

namespace convoy::kernels {
namespace {

using cuda::Pack, cuda::Piece, cuda::SlotTable;

constexpr int kStepBlock = 256;
// Elements per block: 4 packs of floats per thread. A thread has one pack of each array in flight, which is
// three or four loads of 16 bytes and enough to saturate an SM.
constexpr int kStepPiece = 4096;

using SgdStep = cuda::Step<SgdCoefficients<float>, SgdCoefficients<double>>;
using AdamStep = cuda::Step<AdamCoefficients<float>, AdamCoefficients<double>>;

template <class T, int kWritten>
struct StepSlot {
  T* written[kWritten];  // the parameter, then its states
  const void* gradient;
  void* low_precision_copy;  // null: no copy
  std::int64_t numel;
  std::uint32_t first_block;
  std::uint16_t group;
  DType gradient_dtype;  // T, f16 or bf16
  DType half_dtype;
};

/// Steps the kWidth elements from index `at` on.
template <int kWidth, class T, int kWritten, class Update, std::size_t... kIndex>
__device__ void step_pack(const StepSlot<T, kWritten>& slot, std::int64_t at, const Update& update,
                          T grad_scale, std::index_sequence<kIndex...>) {
  const Pack<T, kWidth> grad = cuda::load_gradient<T, kWidth>(slot.gradient, slot.gradient_dtype, at);
  Pack<T, kWidth> packs[kWritten];
  for (int k = 0; k < kWritten; ++k) packs[k] = cuda::load_pack<kWidth>(slot.written[k] + at);
  for (int i = 0; i < kWidth; ++i) update(grad_scale * grad.values[i], packs[kIndex].values[i]...);
  for (int k = 0; k < kWritten; ++k) cuda::store_pack(slot.written[k] + at, packs[k]);
  cuda::store_copy(slot.low_precision_copy, slot.half_dtype, at, packs[0]);
}

template <class Slot>
__device__ bool slot_is_aligned(const Slot& slot) {
  bool aligned = cuda::is_aligned(slot.gradient) && cuda::is_aligned(slot.low_precision_copy);
  for (const auto* array : slot.written) aligned = aligned && cuda::is_aligned(array);
  return aligned;
}

template <class Update, class T, int kWritten, class Step>
__global__ void __launch_bounds__(kStepBlock)
    step_kernel(const SlotTable<StepSlot<T, kWritten>> table, const Step* steps) {
  constexpr int kWidth = cuda::kVectorWidth<T>;
  constexpr std::make_index_sequence<kWritten> kArrays;
  const Piece piece = cuda::piece_of_block<kStepPiece>(table);
  const auto& slot = table.slots[piece.slot];
  cuda::wait_for_previous_kernel();
  const Step& step = steps[slot.group];
  if (step.skipped) return;
  const Update update{step.template of<T>()};
  const T grad_scale = step.template grad_scale<T>();
  const auto thread = static_cast<int>(threadIdx.x);
  const int packs = slot_is_aligned(slot) ? piece.count / kWidth : 0;
  for (int pack = thread; pack < packs; pack += kStepBlock)
    step_pack<kWidth>(slot, piece.begin + pack * kWidth, update, grad_scale, kArrays);
  for (int i = packs * kWidth + thread; i < piece.count; i += kStepBlock)
    step_pack<1>(slot, piece.begin + i, update, grad_scale, kArrays);
}

/// Enqueues Update for the slots, by the coefficients of each group.
template <class Update, class T, int kWritten, class Step>
void run_step(CudaStream& stream, const std::vector<StepSlot<T, kWritten>>& slots, const Step* steps) {
  cuda::for_each_table<kStepPiece>(slots,
                                   [&](const SlotTable<StepSlot<T, kWritten>>& table, unsigned blocks) {
                                     launch(LaunchStart::early, stream, blocks, kStepBlock, 0,
                                            step_kernel<Update, T, kWritten, Step>, table, steps);
                                   });
}

template <class T, class Slot, class... State>
auto step_slot(const Slot& slot, std::size_t group, const State&... states) {
  return StepSlot<T, 1 + sizeof...(State)>{
      .written = {slot.parameter.template as<T>(), states.template as<T>()...},
      .gradient = slot.gradient.data,
      .low_precision_copy = slot.low_precision_copy.data,
      .numel = slot.parameter.numel(),
      .first_block = 0,
      .group = static_cast<std::uint16_t>(group),
      .gradient_dtype = slot.gradient.dtype,
      .half_dtype = slot.low_precision_copy.dtype};
}

template <class T>
__global__ void clip_kernel(const double* norm, double max_norm, const T* loss_scale, double* coefficient) {
  *coefficient = clip_coefficient_of(norm, max_norm, loss_scale);
}

}  // namespace

void sgd_step(CudaStream& stream, const std::vector<SgdGroup>& groups, const StepScalars& scalars) {
  cuda::check_types(groups);
  const cuda::PreparedStep<SgdStep> prepared(stream, groups, scalars);
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    std::vector<StepSlot<T, 1>> plain;
    std::vector<StepSlot<T, 2>> with_momentum, with_nesterov;
    cuda::for_each_slot(groups, [&](const SgdSlot& slot, const SgdOptions& options, std::size_t group) {
      if (slot.parameter.dtype != dtype_of<T>) return;
      if (slot.momentum.data == nullptr) return plain.push_back(step_slot<T>(slot, group));
      (options.nesterov ? with_nesterov : with_momentum).push_back(step_slot<T>(slot, group, slot.momentum));
    });
    run_step<SgdUpdate<T>>(stream, plain, prepared.steps());
    run_step<MomentumUpdate<T, false>>(stream, with_momentum, prepared.steps());
    run_step<MomentumUpdate<T, true>>(stream, with_nesterov, prepared.steps());
  };
  run(float{});
  run(double{});
}

void adam_step(CudaStream& stream, const std::vector<AdamGroup>& groups, const StepScalars& scalars) {
  cuda::check_types(groups);
  const cuda::PreparedStep<AdamStep> prepared(stream, groups, scalars);
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    std::vector<StepSlot<T, 3>> adam, rms_prop;
    cuda::for_each_slot(groups, [&](const AdamSlot& slot, const AdamOptions& options, std::size_t group) {
      if (slot.parameter.dtype == dtype_of<T>)
        (options.rms_prop ? rms_prop : adam)
            .push_back(step_slot<T>(slot, group, slot.first_moment, slot.second_moment));
    });
    run_step<AdamUpdate<T>>(stream, adam, prepared.steps());
    run_step<RmsPropUpdate<T>>(stream, rms_prop, prepared.steps());
  };
  run(float{});
  run(double{});
}

void clip_coefficient(CudaStream& stream, ConstView norm, double max_norm, ConstView loss_scale,
                      View coefficient) {
  dispatch(cuda::kGpuFullTypes, loss_scale.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, 1, 1, 0, clip_kernel<T>, norm.as<double>(), max_norm, loss_scale.as<T>(),
           coefficient.as<double>());
  });
}

namespace {

template <class T>
__global__ void loss_scale_kernel(const std::int32_t* non_finite, LossScaleNumbers<T> numbers,
                                  LossScaleOptions options) {
  numbers.update(*non_finite != 0, options);
}

}  // namespace

void update_loss_scale(CudaStream& stream, ConstView non_finite, const LossScaleView& state,
                       LossScaleOptions options) {
  dispatch(cuda::kGpuFullTypes, state.scale.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, 1, 1, 0, loss_scale_kernel<T>, non_finite.as<std::int32_t>(), LossScaleNumbers<T>(state),
           options);
  });
}

}  // namespace convoy::kernels

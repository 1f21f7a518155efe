// kernels/optimizer_step.h on the GPU. One launch steps dozens of parameters (82 with momentum, 70 with
// Adam). Each byte is read once and written once: 20 bytes per f32 element with momentum, 28 with Adam, and 2
// more for a low-precision copy.
#include "convoy/kernels/optimizer_step.h"

#include <cmath>
#include <utility>

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/cuda/primitives/multi_tensor.h"
#include "convoy/kernels/shared/optimizer_update.h"

namespace convoy::kernels {
namespace {

using cuda::Pack, cuda::Piece, cuda::SlotTable;

constexpr int kStepBlock = 256;
// Elements per block: 4 packs of floats per thread. A thread has one pack of each array in flight, which is
// three or four loads of 16 bytes and enough to saturate an SM.
constexpr int kStepPiece = 4096;

/// The coefficients of an optimizer step, computed from its scalars by one thread in a separate launch. The
/// powers and roots in f64 would cost each thread of step_kernel() more than its elements do, and would take
/// registers from a memory-bound kernel.
template <class Update>
struct Step {
  using T = typename Update::Element;
  static constexpr int kWritten = 1 + Update::kStates;  // written arrays: the parameter, then its states
  Update update;
  T grad_scale;
  bool skipped;

  template <class Packs, std::size_t... kIndex>
  __device__ void apply(T grad, Packs& packs, int i, std::index_sequence<kIndex...>) const {
    update(grad_scale * grad, packs[kIndex].values[i]...);
  }
};

template <class Update>
__global__ void prepare_kernel(StepPointers scalars, typename Update::Options options, Step<Update>* step) {
  *step = {.update = Update(options, scalars),
           .grad_scale = static_cast<typename Update::Element>(scalars.gradient_factor()),
           .skipped = scalars.skipped()};
}

template <class T, int kWritten>
struct StepSlot {
  T* written[kWritten];
  const T* gradient;
  void* low_precision_copy;  // null: no copy
  std::int64_t numel;
  std::uint32_t first_block;
  DType half_dtype;
};

/// Stores a pack in the low-precision copy, rounded to Half.
template <class Half, class T, int kWidth>
__device__ void store_rounded(void* low_precision_copy, std::int64_t at, const Pack<T, kWidth>& from) {
  Pack<Half, kWidth> out;
  for (int i = 0; i < kWidth; ++i) out.values[i] = converted<Half>(from.values[i]);
  cuda::store_pack(static_cast<Half*>(low_precision_copy) + at, out);
}

/// Steps the kWidth elements from index `at` on.
template <int kWidth, class Step, class Slot>
__device__ void step_pack(const Slot& slot, std::int64_t at, const Step& step) {
  const auto grad = cuda::load_pack<kWidth>(slot.gradient + at);
  Pack<typename Step::T, kWidth> packs[Step::kWritten];
  for (int k = 0; k < Step::kWritten; ++k) packs[k] = cuda::load_pack<kWidth>(slot.written[k] + at);
  for (int i = 0; i < kWidth; ++i)
    step.apply(grad.values[i], packs, i, std::make_index_sequence<Step::kWritten>{});
  for (int k = 0; k < Step::kWritten; ++k) cuda::store_pack(slot.written[k] + at, packs[k]);
  if (slot.low_precision_copy == nullptr) return;
  if (slot.half_dtype == DType::f16) {
    store_rounded<float16>(slot.low_precision_copy, at, packs[0]);
  } else {
    store_rounded<bfloat16>(slot.low_precision_copy, at, packs[0]);
  }
}

template <class Slot>
__device__ bool slot_is_aligned(const Slot& slot) {
  bool aligned = cuda::is_aligned(slot.gradient) && cuda::is_aligned(slot.low_precision_copy);
  for (const auto* array : slot.written) aligned = aligned && cuda::is_aligned(array);
  return aligned;
}

template <class Update, class Slot>
__global__ void __launch_bounds__(kStepBlock)
    step_kernel(const SlotTable<Slot> table, const Step<Update>* prepared) {
  constexpr int kWidth = cuda::kVectorWidth<typename Update::Element>;
  const Step<Update> step = *prepared;
  if (step.skipped) return;
  const Piece piece = cuda::piece_of_block<kStepPiece>(table);
  const Slot& slot = table.slots[piece.slot];
  const auto thread = static_cast<int>(threadIdx.x);
  const int packs = slot_is_aligned(slot) ? piece.count / kWidth : 0;
  for (int pack = thread; pack < packs; pack += kStepBlock)
    step_pack<kWidth>(slot, piece.begin + pack * kWidth, step);
  for (int i = packs * kWidth + thread; i < piece.count; i += kStepBlock)
    step_pack<1>(slot, piece.begin + i, step);
}

/// Collects the slots of one kind of update, and launches its kernels.
template <class Update>
class Launcher {
  using T = typename Update::Element;
  using Slot = StepSlot<T, Step<Update>::kWritten>;

 public:
  template <class... State>
  void add(const View& parameter, const ConstView& gradient, const View& low_precision_copy,
           const State&... states) {
    slots_.push_back({.written = {parameter.as<T>(), states.template as<T>()...},
                      .gradient = gradient.as<T>(),
                      .low_precision_copy = low_precision_copy.data,
                      .numel = parameter.numel(),
                      .first_block = 0,
                      .half_dtype = low_precision_copy.dtype});
  }

  void launch_all(CudaStream& stream, const StepScalars& scalars,
                  const typename Update::Options& options) const {
    if (slots_.empty()) return;
    const cuda::Scratch scratch(stream, sizeof(Step<Update>));
    auto* const step = scratch.as<Step<Update>>();
    launch(stream, 1, 1, 0, prepare_kernel<Update>, StepPointers(scalars), options, step);
    cuda::for_each_table<kStepPiece>(slots_, [&](const SlotTable<Slot>& table, unsigned blocks) {
      launch(stream, blocks, kStepBlock, 0, step_kernel<Update, Slot>, table, step);
    });
  }

 private:
  std::vector<Slot> slots_;
};

/// Calls f for each type of master parameters, f32 and f64. One call may have slots of both types. Throws
/// UsageError if a parameter has any other type.
template <class Slots, class F>
void for_each_type(const Slots& slots, F f) {
  for (const auto& slot : slots) dispatch(cuda::kGpuFullTypes, slot.parameter.dtype, [](auto) {});
  f(float{});
  f(double{});
}

template <bool kNesterov>
void sgd_step_of(CudaStream& stream, std::span<const SgdSlot> slots, const StepScalars& scalars,
                 const SgdOptions& options) {
  for_each_type(slots, [&](auto zero) {
    using T = decltype(zero);
    Launcher<SgdUpdate<T>> plain;
    Launcher<MomentumUpdate<T, kNesterov>> with_momentum;
    for (const SgdSlot& slot : slots) {
      if (slot.parameter.dtype != dtype_of<T>) continue;
      if (slot.momentum.data == nullptr) {
        plain.add(slot.parameter, slot.gradient, slot.low_precision_copy);
      } else {
        with_momentum.add(slot.parameter, slot.gradient, slot.low_precision_copy, slot.momentum);
      }
    }
    plain.launch_all(stream, scalars, options);
    with_momentum.launch_all(stream, scalars, options);
  });
}

__global__ void count_kernel(const std::int32_t* skip, double* steps) {
  if (skip == nullptr || *skip == 0) *steps += 1;
}

template <class T>
__global__ void clip_kernel(const double* norm, double max_norm, const T* loss_scale, double* coefficient) {
  *coefficient = clip_coefficient_of(norm, max_norm, loss_scale);
}

}  // namespace

void sgd_step(CudaStream& stream, std::span<const SgdSlot> slots, const StepScalars& scalars,
              SgdOptions options) {
  if (options.nesterov) return sgd_step_of<true>(stream, slots, scalars, options);
  sgd_step_of<false>(stream, slots, scalars, options);
}

void adam_step(CudaStream& stream, std::span<const AdamSlot> slots, const StepScalars& scalars,
               AdamOptions options) {
  for_each_type(slots, [&](auto zero) {
    using T = decltype(zero);
    Launcher<AdamUpdate<T>> adam;
    for (const AdamSlot& slot : slots)
      if (slot.parameter.dtype == dtype_of<T>)
        adam.add(slot.parameter, slot.gradient, slot.low_precision_copy, slot.first_moment,
                 slot.second_moment);
    adam.launch_all(stream, scalars, options);
  });
}

void count_step(CudaStream& stream, ConstView skip, View steps) {
  launch(stream, 1, 1, 0, count_kernel, skip.as<std::int32_t>(), steps.as<double>());
}

void clip_coefficient(CudaStream& stream, ConstView norm, double max_norm, ConstView loss_scale,
                      View coefficient) {
  dispatch(cuda::kGpuFullTypes, loss_scale.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, 1, 1, 0, clip_kernel<T>, norm.as<double>(), max_norm, loss_scale.as<T>(),
           coefficient.as<double>());
  });
}

}  // namespace convoy::kernels

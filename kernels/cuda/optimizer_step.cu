// Optimizer steps on the GPU: one launch for dozens of parameters (of momentum 82, of Adam 70), and each byte
// read once and written once: 20 an element of f32 with momentum, 28 with Adam, and 2 for a half copy.
#include "kernels/optimizer_step.h"

#include <cmath>
#include <utility>

#include "kernels/convert.h"
#include "kernels/cuda/multi_tensor.h"
#include "kernels/optimizer_update.h"

namespace convoy {
namespace {

using cuda::Pack, cuda::Piece, cuda::SlotTable;

constexpr int kStepBlock = 256;
constexpr int kStepPiece = 4096;  // elements of a block: 4 packs of floats a thread
// In flight are a thread's loads of one pack of each array, three or four of 16 bytes: enough for a full SM.

/// An update with its number of states and how to call it on a pack's elements.
template <class T, class Update, int kStateCount>
struct Step {
  using Element = T;
  static constexpr int kWritten = 1 + kStateCount;  // the parameter, then its states
  Update update;

  template <class Packs, std::size_t... kIndex>
  __device__ void apply(T grad, Packs& packs, int i, std::index_sequence<kIndex...>) const {
    update(grad, packs[kIndex].values[i]...);
  }
};

template <class T, int kWritten>
struct StepSlot {
  T* written[kWritten];
  const T* gradient;
  void* half_copy;  // null where there is none
  std::int64_t numel;
  std::uint32_t first_block;
  DType half_dtype;
};

template <class Half, class T, int kWidth>
__device__ void store_rounded(void* half_copy, std::int64_t at, const Pack<T, kWidth>& from) {
  Pack<Half, kWidth> out;
  for (int i = 0; i < kWidth; ++i) out.values[i] = converted<Half>(from.values[i]);
  cuda::store_pack(static_cast<Half*>(half_copy) + at, out);
}

/// The kWidth elements from `at` on.
template <int kWidth, class T, class Step, class Slot>
__device__ void step_pack(const Slot& slot, std::int64_t at, Step step, T grad_scale) {
  const auto grad = cuda::load_pack<kWidth>(slot.gradient + at);
  Pack<T, kWidth> packs[Step::kWritten];
  for (int k = 0; k < Step::kWritten; ++k) packs[k] = cuda::load_pack<kWidth>(slot.written[k] + at);
  for (int i = 0; i < kWidth; ++i)
    step.apply(grad_scale * grad.values[i], packs, i, std::make_index_sequence<Step::kWritten>{});
  for (int k = 0; k < Step::kWritten; ++k) cuda::store_pack(slot.written[k] + at, packs[k]);
  if (slot.half_copy == nullptr) return;
  if (slot.half_dtype == DType::f16) {
    store_rounded<float16>(slot.half_copy, at, packs[0]);
  } else {
    store_rounded<bfloat16>(slot.half_copy, at, packs[0]);
  }
}

template <class Slot>
__device__ bool slot_is_aligned(const Slot& slot) {
  bool aligned = cuda::packs_may_begin(slot.gradient) && cuda::packs_may_begin(slot.half_copy);
  for (const auto* array : slot.written) aligned = aligned && cuda::packs_may_begin(array);
  return aligned;
}

template <class Step, class Slot>
__global__ void __launch_bounds__(kStepBlock)
    step_kernel(const SlotTable<Slot> table, Step step, const double* grad_scale) {
  using T = typename Step::Element;
  constexpr int kWidth = cuda::kVectorWidth<T>;
  const Piece piece = cuda::piece_of_block<kStepPiece>(table);
  const Slot& slot = table.slots[piece.slot];
  const T scale = grad_scale != nullptr ? static_cast<T>(*grad_scale) : T{1};
  const auto thread = static_cast<int>(threadIdx.x);
  const int packs = slot_is_aligned(slot) ? piece.count / kWidth : 0;
  for (int pack = thread; pack < packs; pack += kStepBlock)
    step_pack<kWidth>(slot, piece.begin + pack * kWidth, step, scale);
  for (int i = packs * kWidth + thread; i < piece.count; i += kStepBlock)
    step_pack<1>(slot, piece.begin + i, step, scale);
}

/// The slots that one kind of step updates, as its kernel takes them.
template <class Step>
class Launcher {
  using T = typename Step::Element;
  using Slot = StepSlot<T, Step::kWritten>;

 public:
  template <class... State>
  void add(const View& parameter, const ConstView& gradient, const View& half_copy, const State&... states) {
    slots_.push_back({.written = {parameter.as<T>(), states.template as<T>()...},
                      .gradient = gradient.as<T>(),
                      .half_copy = half_copy.data,
                      .numel = parameter.numel(),
                      .first_block = 0,
                      .half_dtype = half_copy.dtype});
  }

  void launch_all(CudaStream& stream, Step step, const ConstView& grad_scale) const {
    cuda::for_each_table<kStepPiece>(slots_, [&](const SlotTable<Slot>& table, unsigned blocks) {
      launch(stream, blocks, kStepBlock, 0, step_kernel<Step, Slot>, table, step, grad_scale.as<double>());
    });
  }

 private:
  std::vector<Slot> slots_;
};

/// Master parameters are f32 or f64, as on the CPU; slots of both may stand in one call.
template <class Slots, class F>
void for_each_type(const Slots& slots, F f) {
  for (const auto& slot : slots) dispatch_compute(slot.parameter.dtype, [](auto) {});
  f(float{});
  f(double{});
}

template <bool kNesterov>
void sgd_step_of(CudaStream& stream, std::span<const SgdSlot> slots, const ConstView& grad_scale,
                 const SgdOptions& options) {
  for_each_type(slots, [&](auto zero) {
    using T = decltype(zero);
    using Plain = Step<T, SgdUpdate<T>, 0>;
    using WithMomentum = Step<T, MomentumUpdate<T, kNesterov>, 1>;
    Launcher<Plain> plain;
    Launcher<WithMomentum> with_momentum;
    for (const SgdSlot& slot : slots) {
      if (slot.parameter.dtype != dtype_of<T>) continue;
      if (slot.momentum.data == nullptr) {
        plain.add(slot.parameter, slot.gradient, slot.half_copy);
      } else {
        with_momentum.add(slot.parameter, slot.gradient, slot.half_copy, slot.momentum);
      }
    }
    plain.launch_all(stream, Plain{SgdUpdate<T>(options)}, grad_scale);
    with_momentum.launch_all(stream, WithMomentum{MomentumUpdate<T, kNesterov>(options)}, grad_scale);
  });
}

__global__ void clip_kernel(const double* norm, double max_norm, double* coefficient) {
  const double wanted = max_norm / (*norm + 1e-6);
  *coefficient = wanted > 1 ? 1 : wanted;  // in this order NaN stays NaN
}

}  // namespace

void sgd_step(CudaStream& stream, std::span<const SgdSlot> slots, ConstView grad_scale, SgdOptions options) {
  if (options.nesterov) return sgd_step_of<true>(stream, slots, grad_scale, options);
  sgd_step_of<false>(stream, slots, grad_scale, options);
}

void adam_step(CudaStream& stream, std::span<const AdamSlot> slots, ConstView grad_scale,
               AdamOptions options) {
  for_each_type(slots, [&](auto zero) {
    using T = decltype(zero);
    using Adam = Step<T, AdamUpdate<T>, 2>;
    Launcher<Adam> adam;
    for (const AdamSlot& slot : slots)
      if (slot.parameter.dtype == dtype_of<T>)
        adam.add(slot.parameter, slot.gradient, slot.half_copy, slot.first_moment, slot.second_moment);
    adam.launch_all(stream, Adam{AdamUpdate<T>(options)}, grad_scale);
  });
}

void clip_coefficient(CudaStream& stream, ConstView norm, double max_norm, View coefficient) {
  launch(stream, 1, 1, 0, clip_kernel, norm.as<double>(), max_norm, coefficient.as<double>());
}

}  // namespace convoy

// kernels/layerwise_step.h on the GPU. Four kernels step the parameters of all groups, dozens per launch: the
// coefficients of the groups, sums of squares (LAMB: and the new moments), the trust ratios, and the new parameters.
#include "convoy/kernels/layerwise_step.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "convoy/kernels/cuda/optimizer/prepared_step.h"
#include "convoy/kernels/cuda/optimizer/step_arrays.h"
#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "convoy/kernels/cuda/primitives/multi_tensor.h"
#include "convoy/kernels/shared/layerwise_update.h"

namespace convoy::kernels {
namespace {

using cuda::BlockPartials, cuda::is_aligned, cuda::Pack, cuda::Piece, cuda::SlotTable;

constexpr int kLayerBlock = 256;
constexpr int kLayerPiece = 4096;  // elements per block: 4 packs of floats per thread and array
constexpr int kRatioBlock = 128;

template <class T, int kStates>
struct Slot {
  T* written[1 + kStates];  // the parameter, then its states
  const void* gradient;
  void* low_precision_copy;  // null: no copy
  std::int64_t numel;
  std::uint32_t first_block;
  std::uint32_t first_piece;  // among the pieces of all slots
  std::uint32_t index;        // among all slots
  std::uint16_t group;
  DType gradient_dtype;  // T, f16 or bf16
  DType half_dtype;

  __device__ bool arrays_are_aligned() const {
    bool aligned = is_aligned(gradient) && is_aligned(low_precision_copy);
    for (const T* array : written) aligned = aligned && is_aligned(array);
    return aligned;
  }
};

/// A parameter whose trust ratio trust_ratios_kernel() computes.
struct RatioSlot {
  std::uint32_t first_piece, pieces;
  std::uint16_t group;
  bool adapts;
};

struct RatioTable {
  static constexpr int kCapacity = 300;
  RatioSlot slots[kCapacity];
  int first_slot;  // index of slots[0] among all slots
};
static_assert(sizeof(RatioTable) <= cuda::kTableBytes);

/// The elements of a thread's pack, and where they are stored.
template <class T, int kWidth, int kStates>
struct LayerPack {
  Pack<T, kWidth> gradient, written[1 + kStates];

  __device__ LayerPack(const Slot<T, kStates>& slot, std::int64_t at, bool aligned)
      : gradient(cuda::load_gradient<T, kWidth>(slot.gradient, slot.gradient_dtype, at, aligned)) {
#pragma unroll
    for (int k = 0; k <= kStates; ++k) written[k] = cuda::load_pack<kWidth>(slot.written[k] + at, aligned);
  }
};

/// Calls step(pack width, index of its first element) for the elements of a block's piece. Which thread gets
/// which elements does not depend on their address, so sums do not either.
template <class T, class F>
__device__ void for_each_pack(const Piece& piece, F step) {
  constexpr int kWidth = cuda::kVectorWidth<T>;
  const auto thread = static_cast<int>(threadIdx.x);
  const int packs = piece.count / kWidth;
  for (int pack = thread; pack < packs; pack += kLayerBlock)
    step(std::integral_constant<int, kWidth>{}, piece.begin + pack * kWidth);
  for (int i = packs * kWidth + thread; i < piece.count; i += kLayerBlock)
    step(std::integral_constant<int, 1>{}, piece.begin + i);
}

/// Stores the sums of squares of one piece, and the states that their computation changes.
template <class Update, class T, class Step, std::size_t... kIndex>
__device__ LayerSquares measure_piece(const Slot<T, Update::kStates>& slot, const Piece& piece,
                                      const Step& step, std::index_sequence<kIndex...>) {
  const Update& update = step.template of<T>();
  const T grad_scale = step.template grad_scale<T>();
  const bool aligned = slot.arrays_are_aligned();
  LayerSquares sums;
  for_each_pack<T>(piece, [&](auto width, std::int64_t at) {
    constexpr int kWidth = decltype(width)::value;
    LayerPack<T, kWidth, Update::kStates> pack(slot, at, aligned);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const T p = pack.written[0].values[i];
      sums.add(
          p, update.measured(grad_scale * pack.gradient.values[i], p, pack.written[1 + kIndex].values[i]...));
    }
    if constexpr (Update::kMeasureWrites) {
#pragma unroll
      for (int k = 1; k <= Update::kStates; ++k)
        cuda::store_pack(slot.written[k] + at, pack.written[k], aligned);
    }
  });
  return sums;
}

template <class Update, class T, class Step>
__global__ void __launch_bounds__(kLayerBlock)
    layer_squares_kernel(const SlotTable<Slot<T, Update::kStates>> table, const Step* steps,
                         LayerSquares* squares) {
  const Piece piece = cuda::piece_of_block<kLayerPiece>(table);
  const auto& slot = table.slots[piece.slot];
  const Step& step = steps[slot.group];
  if (step.skipped) return;
  LayerSquares sums = measure_piece<Update>(slot, piece, step, std::make_index_sequence<Update::kStates>{});
  auto& partials = cuda::shared_memory<BlockPartials<double, kLayerBlock>>();
  sums.parameter = cuda::block_reduce<kLayerBlock>(sums.parameter, cuda::Sum{}, partials);
  sums.measured = cuda::block_reduce<kLayerBlock>(sums.measured, cuda::Sum{}, partials);
  if (threadIdx.x == 0) squares[slot.first_piece + (blockIdx.x - slot.first_block)] = sums;
}

/// Computes the trust ratio of one parameter per block.
template <class Step>
__global__ void __launch_bounds__(kRatioBlock)
    trust_ratios_kernel(const RatioTable table, const Step* steps, const LayerSquares* squares,
                        double* ratios) {
  const RatioSlot& slot = table.slots[blockIdx.x];
  const Step& step = steps[slot.group];
  if (step.skipped) return;
  LayerSquares sums;
  for (unsigned piece = threadIdx.x; piece < slot.pieces; piece += kRatioBlock) {
    sums.parameter += squares[slot.first_piece + piece].parameter;
    sums.measured += squares[slot.first_piece + piece].measured;
  }
  auto& partials = cuda::shared_memory<BlockPartials<double, kRatioBlock>>();
  sums.parameter = cuda::block_reduce<kRatioBlock>(sums.parameter, cuda::Sum{}, partials);
  sums.measured = cuda::block_reduce<kRatioBlock>(sums.measured, cuda::Sum{}, partials);
  if (threadIdx.x == 0)
    ratios[static_cast<unsigned>(table.first_slot) + blockIdx.x] =
        slot.adapts ? sums.trust_ratio(step.f64) : 1;
}

/// Steps one piece of a parameter by its trust ratio.
template <class Update, class T, class Step, std::size_t... kIndex>
__device__ void step_piece(const Slot<T, Update::kStates>& slot, const Piece& piece, const Step& step,
                           T ratio, std::index_sequence<kIndex...>) {
  const Update& update = step.template of<T>();
  const T grad_scale = step.template grad_scale<T>();
  const bool aligned = slot.arrays_are_aligned();
  for_each_pack<T>(piece, [&](auto width, std::int64_t at) {
    constexpr int kWidth = decltype(width)::value;
    LayerPack<T, kWidth, Update::kStates> pack(slot, at, aligned);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      update.apply(grad_scale * pack.gradient.values[i], pack.written[0].values[i],
                   pack.written[1 + kIndex].values[i]..., ratio);
    cuda::store_pack(slot.written[0] + at, pack.written[0], aligned);
    if constexpr (!Update::kMeasureWrites) {
#pragma unroll
      for (int k = 1; k <= Update::kStates; ++k)
        cuda::store_pack(slot.written[k] + at, pack.written[k], aligned);
    }
    cuda::store_copy(slot.low_precision_copy, slot.half_dtype, at, pack.written[0], aligned);
  });
}

template <class Update, class T, class Step>
__global__ void __launch_bounds__(kLayerBlock)
    layer_step_kernel(const SlotTable<Slot<T, Update::kStates>> table, const Step* steps,
                      const double* ratios) {
  const Piece piece = cuda::piece_of_block<kLayerPiece>(table);
  const auto& slot = table.slots[piece.slot];
  const Step& step = steps[slot.group];
  if (step.skipped) return;
  step_piece<Update>(slot, piece, step, static_cast<T>(ratios[slot.index]),
                     std::make_index_sequence<Update::kStates>{});
}

std::uint32_t pieces_of(const LayerwiseSlot& slot) { return blocks_for(slot.parameter.numel(), kLayerPiece); }

template <class T, int kStates>
Slot<T, kStates> slot_of(const LayerwiseSlot& slot, std::size_t group, std::uint32_t index,
                         std::uint32_t pieces) {
  Slot<T, kStates> out{.written = {slot.parameter.as<T>()},
                       .gradient = slot.gradient.data,
                       .low_precision_copy = slot.low_precision_copy.data,
                       .numel = slot.parameter.numel(),
                       .first_block = 0,
                       .first_piece = pieces,
                       .index = index,
                       .group = static_cast<std::uint16_t>(group),
                       .gradient_dtype = slot.gradient.dtype,
                       .half_dtype = slot.low_precision_copy.dtype};
  for (std::size_t k = 0; k < kStates; ++k) out.written[1 + k] = slot.states[k].template as<T>();
  return out;
}

/// The slots of all parameters, by type, and those of their trust ratios.
template <int kStates>
struct AllSlots {
  std::vector<Slot<float, kStates>> f32;
  std::vector<Slot<double, kStates>> f64;
  std::vector<RatioSlot> ratios;
  std::uint32_t pieces = 0;

  template <class Group>
  explicit AllSlots(const std::vector<Group>& groups) {
    cuda::check_types(groups);
    cuda::for_each_slot(groups, [&](const LayerwiseSlot& slot, const auto&, std::size_t group) {
      const auto index = static_cast<std::uint32_t>(ratios.size());
      if (slot.parameter.dtype == DType::f32)
        f32.push_back(slot_of<float, kStates>(slot, group, index, pieces));
      else
        f64.push_back(slot_of<double, kStates>(slot, group, index, pieces));
      ratios.push_back({.first_piece = pieces,
                        .pieces = pieces_of(slot),
                        .group = static_cast<std::uint16_t>(group),
                        .adapts = slot.adapts});
      pieces += pieces_of(slot);
    });
  }
  /// Calls f(zero of the type, table, blocks) for each launch over elements.
  template <class F>
  void for_each_table(F f) const {
    cuda::for_each_table<kLayerPiece>(f32,
                                      [&](const auto& table, unsigned blocks) { f(float{}, table, blocks); });
    cuda::for_each_table<kLayerPiece>(
        f64, [&](const auto& table, unsigned blocks) { f(double{}, table, blocks); });
  }
};

/// Steps all slots by Update<T>.
template <template <class> class Update, class Group>
void step_groups(CudaStream& stream, const std::vector<Group>& groups, const StepScalars& scalars) {
  using Step = cuda::Step<Update<float>, Update<double>>;
  const AllSlots<Update<float>::kStates> slots(groups);
  const cuda::PreparedStep<Step> prepared(stream, groups, scalars);
  if (slots.ratios.empty()) return;
  const cuda::Scratch squares(stream, std::max<std::size_t>(slots.pieces, 1) * sizeof(LayerSquares));
  const cuda::Scratch ratios(stream, slots.ratios.size() * sizeof(double));
  slots.for_each_table([&](auto zero, const auto& table, unsigned blocks) {
    using T = decltype(zero);
    launch(stream, blocks, kLayerBlock, sizeof(BlockPartials<double, kLayerBlock>),
           layer_squares_kernel<Update<T>, T, Step>, table, prepared.steps(), squares.as<LayerSquares>());
  });
  for (std::size_t first = 0; first < slots.ratios.size(); first += RatioTable::kCapacity) {
    RatioTable table{};
    const std::size_t count = std::min<std::size_t>(slots.ratios.size() - first, RatioTable::kCapacity);
    std::copy_n(slots.ratios.begin() + static_cast<std::ptrdiff_t>(first), count, table.slots);
    table.first_slot = static_cast<int>(first);
    launch(stream, static_cast<unsigned>(count), kRatioBlock, sizeof(BlockPartials<double, kRatioBlock>),
           trust_ratios_kernel<Step>, table, prepared.steps(), squares.as<LayerSquares>(),
           ratios.as<double>());
  }
  slots.for_each_table([&](auto zero, const auto& table, unsigned blocks) {
    using T = decltype(zero);
    launch(stream, blocks, kLayerBlock, 0, layer_step_kernel<Update<T>, T, Step>, table, prepared.steps(),
           ratios.as<double>());
  });
}

}  // namespace

void lars_step(CudaStream& stream, const std::vector<LarsGroup>& groups, const StepScalars& scalars) {
  step_groups<LarsUpdate>(stream, groups, scalars);
}

void lamb_step(CudaStream& stream, const std::vector<LambGroup>& groups, const StepScalars& scalars) {
  step_groups<LambUpdate>(stream, groups, scalars);
}

}  // namespace convoy::kernels

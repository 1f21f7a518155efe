// kernels/muon_step.h on the GPU. Four kernels step the parameters of all groups, dozens per launch: the new
// momentum with sums of squares, the norms, the directions, and the new parameters. The third one computes
// the direction again from the gradient and the new momentum. That moves fewer bytes than storing it before
// its norm is known.
#include "convoy/kernels/muon_step.h"

#include <algorithm>
#include <type_traits>

#include "convoy/kernels/cuda/optimizer/prepared_step.h"
#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "convoy/kernels/cuda/primitives/multi_tensor.h"
#include "convoy/kernels/shared/optimizer_update.h"

namespace convoy::kernels {
namespace {

using cuda::BlockPartials, cuda::is_aligned, cuda::Pack, cuda::Piece, cuda::SlotTable;

constexpr int kMuonBlock = 256;
constexpr int kMuonPiece = 4096;  // elements per block: 4 packs of floats per thread and array
constexpr int kNormBlock = 128;

/// The type of directions of parameters of type T, as muon_direction_type() returns it.
template <class T>
using Direction = std::conditional_t<std::is_same_v<T, float>, bfloat16, T>;

template <class T>
struct Slot {
  const void* gradient;
  T* parameter;
  T* momentum;
  Direction<T>* direction;
  void* low_precision_copy;  // null: no copy
  double lr_scale;           // lr_scale scale
  std::int64_t numel;
  T momentum_factor;
  std::uint32_t first_block;
  std::uint32_t first_piece;  // among the pieces of all slots
  std::uint32_t index;        // among all slots
  std::int32_t rate;          // index of the learning rate
  DType gradient_dtype;       // T, f16 or bf16
  DType half_dtype;
  bool nesterov, normalize;

  __device__ MuonDirection<T> update(const StepPointers& scalars) const {
    return {.grad_scale = static_cast<T>(scalars.gradient_factor()),
            .momentum = momentum_factor,
            .nesterov = nesterov};
  }
};

/// The sums of squares of one piece of a parameter.
struct Squares {
  double direction, parameter;
};

/// A parameter whose norms norms_kernel() computes.
struct NormSlot {
  std::uint32_t first_piece, pieces;
  std::int32_t rate;  // index of the learning rate
  MuonKeep keep;
};

struct NormTable {
  static constexpr int kCapacity = 120;
  NormSlot slots[kCapacity];
  int first_slot;  // index of slots[0] among all slots
};
static_assert(sizeof(NormTable) <= cuda::kTableBytes);

/// Calls step(pack width, index of its first element) for the elements of a block's piece. Which thread gets
/// which elements does not depend on their address, so sums do not either.
template <class T, class F>
__device__ void for_each_pack(const Piece& piece, F step) {
  constexpr int kWidth = cuda::kVectorWidth<T>;
  const auto thread = static_cast<int>(threadIdx.x);
  const int packs = piece.count / kWidth;
  for (int pack = thread; pack < packs; pack += kMuonBlock)
    step(std::integral_constant<int, kWidth>{}, piece.begin + pack * kWidth);
  for (int i = packs * kWidth + thread; i < piece.count; i += kMuonBlock)
    step(std::integral_constant<int, 1>{}, piece.begin + i);
}

/// Updates the momentum of one piece and stores its sums of squares. A skipped step leaves the momentum, but
/// stores the sums, so that no later kernel reads uninitialized memory.
template <class T>
__global__ void __launch_bounds__(kMuonBlock)
    muon_momentum_kernel(const SlotTable<Slot<T>> table, StepPointers scalars, Squares* squares) {
  const Piece piece = cuda::piece_of_block<kMuonPiece>(table);
  const Slot<T>& slot = table.slots[piece.slot];
  const MuonDirection<T> update = slot.update(scalars);
  const bool skipped = scalars.skipped();
  const bool aligned = is_aligned(slot.gradient) && is_aligned(slot.momentum) && is_aligned(slot.parameter);
  cuda::CompensatedSum<T> of_direction, of_parameter;
  for_each_pack<T>(piece, [&](auto width, std::int64_t at) {
    constexpr int kWidth = decltype(width)::value;
    const auto gradient = cuda::load_gradient<T, kWidth>(slot.gradient, slot.gradient_dtype, at, aligned);
    auto momentum = cuda::load_pack<kWidth>(slot.momentum + at, aligned);
    for (int i = 0; i < kWidth; ++i) {
      momentum.values[i] = update.next_momentum(gradient.values[i], momentum.values[i]);
      of_direction.add_square(update.direction(gradient.values[i], momentum.values[i]));
    }
    if (!skipped) cuda::store_pack(slot.momentum + at, momentum, aligned);
    if (!slot.normalize) return;
    const auto parameter = cuda::load_pack<kWidth>(slot.parameter + at, aligned);
    for (int i = 0; i < kWidth; ++i) of_parameter.add_square(parameter.values[i]);
  });
  auto& partials = cuda::shared_memory<BlockPartials<double, kMuonBlock>>();
  Squares sums{};
  sums.direction = cuda::block_reduce<kMuonBlock>(of_direction.value(), cuda::Sum{}, partials);
  if (slot.normalize)
    sums.parameter = cuda::block_reduce<kMuonBlock>(of_parameter.value(), cuda::Sum{}, partials);
  if (threadIdx.x == 0) squares[slot.first_piece + (blockIdx.x - slot.first_block)] = sums;
}

/// Computes the factors of one parameter per block: that of its direction, and keep.
__global__ void __launch_bounds__(kNormBlock)
    muon_norms_kernel(const NormTable table, StepPointers scalars, const Squares* squares,
                      double* inverse_norms, double* keep) {
  const NormSlot& slot = table.slots[blockIdx.x];
  Squares sums{};
  for (unsigned piece = threadIdx.x; piece < slot.pieces; piece += kNormBlock) {
    sums.direction += squares[slot.first_piece + piece].direction;
    sums.parameter += squares[slot.first_piece + piece].parameter;
  }
  auto& partials = cuda::shared_memory<BlockPartials<double, kNormBlock>>();
  sums.direction = cuda::block_reduce<kNormBlock>(sums.direction, cuda::Sum{}, partials);
  sums.parameter = cuda::block_reduce<kNormBlock>(sums.parameter, cuda::Sum{}, partials);
  if (threadIdx.x != 0) return;
  const unsigned index = static_cast<unsigned>(table.first_slot) + blockIdx.x;
  inverse_norms[index] = muon_inverse_norm(std::sqrt(sums.direction));
  keep[index] = slot.keep.factor(scalars.lr[slot.rate], std::sqrt(sums.parameter));
}

/// Computes the direction of one piece, divided by the norm.
template <class T>
__global__ void __launch_bounds__(kMuonBlock)
    muon_direction_kernel(const SlotTable<Slot<T>> table, StepPointers scalars, const double* inverse_norms) {
  const Piece piece = cuda::piece_of_block<kMuonPiece>(table);
  const Slot<T>& slot = table.slots[piece.slot];
  const MuonDirection<T> update = slot.update(scalars);
  const T factor = static_cast<T>(inverse_norms[slot.index]);
  const bool aligned = is_aligned(slot.gradient) && is_aligned(slot.momentum) && is_aligned(slot.direction);
  for_each_pack<T>(piece, [&](auto width, std::int64_t at) {
    constexpr int kWidth = decltype(width)::value;
    const auto gradient = cuda::load_gradient<T, kWidth>(slot.gradient, slot.gradient_dtype, at, aligned);
    const auto momentum = cuda::load_pack<kWidth>(slot.momentum + at, aligned);
    Pack<Direction<T>, kWidth> direction;
    for (int i = 0; i < kWidth; ++i)
      direction.values[i] =
          cuda::narrow<Direction<T>>(factor * update.direction(gradient.values[i], momentum.values[i]));
    cuda::store_pack(slot.direction + at, direction, aligned);
  });
}

/// Updates one piece of a parameter.
template <class T>
__global__ void __launch_bounds__(kMuonBlock)
    muon_update_kernel(const SlotTable<Slot<T>> table, StepPointers scalars, const double* keep) {
  if (scalars.skipped()) return;
  const Piece piece = cuda::piece_of_block<kMuonPiece>(table);
  const Slot<T>& slot = table.slots[piece.slot];
  const T factor = static_cast<T>(keep[slot.index]),
          rate = static_cast<T>(scalars.lr[slot.rate] * slot.lr_scale);
  const bool aligned =
      is_aligned(slot.parameter) && is_aligned(slot.direction) && is_aligned(slot.low_precision_copy);
  for_each_pack<T>(piece, [&](auto width, std::int64_t at) {
    constexpr int kWidth = decltype(width)::value;
    auto parameter = cuda::load_pack<kWidth>(slot.parameter + at, aligned);
    const auto direction = cuda::load_pack<kWidth>(slot.direction + at, aligned);
    for (int i = 0; i < kWidth; ++i)
      parameter.values[i] = factor * parameter.values[i] - rate * cuda::widen(direction.values[i]);
    cuda::store_pack(slot.parameter + at, parameter, aligned);
    cuda::store_copy(slot.low_precision_copy, slot.half_dtype, at, parameter, aligned);
  });
}

std::uint32_t pieces_of(const MuonSlot& slot) { return blocks_for(slot.parameter.numel(), kMuonPiece); }

/// Calls f(slot, its options, its index among all slots, the pieces of the slots before it) for each slot.
template <class F>
void for_each_slot(const std::vector<MuonGroup>& groups, F f) {
  std::uint32_t index = 0, pieces = 0;
  for (const MuonGroup& group : groups)
    for (const MuonSlot& slot : group.slots) {
      f(slot, group.options, index++, pieces);
      pieces += pieces_of(slot);
    }
}

template <class T>
Slot<T> slot_of(const MuonSlot& slot, const MuonOptions& options, std::uint32_t index, std::uint32_t pieces) {
  return {.gradient = slot.gradient.data,
          .parameter = slot.parameter.as<T>(),
          .momentum = slot.momentum.as<T>(),
          .direction = slot.direction.as<Direction<T>>(),
          .low_precision_copy = slot.low_precision_copy.data,
          .lr_scale = options.lr_scale * slot.scale,
          .numel = slot.parameter.numel(),
          .momentum_factor = static_cast<T>(options.momentum),
          .first_block = 0,
          .first_piece = pieces,
          .index = index,
          .rate = options.rate,
          .gradient_dtype = slot.gradient.dtype,
          .half_dtype = slot.low_precision_copy.dtype,
          .nesterov = options.nesterov,
          .normalize = options.normalize};
}

/// Calls launch_for(zero of type T, table of slots of type T, blocks) for each launch that is needed.
template <class F>
void for_each_table(const std::vector<MuonGroup>& groups, F launch_for) {
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    std::vector<Slot<T>> slots;
    for_each_slot(groups, [&](const MuonSlot& slot, const MuonOptions& options, std::uint32_t index,
                              std::uint32_t pieces) {
      if (slot.parameter.dtype == dtype_of<T>) slots.push_back(slot_of<T>(slot, options, index, pieces));
    });
    cuda::for_each_table<kMuonPiece>(
        slots, [&](const SlotTable<Slot<T>>& table, unsigned blocks) { launch_for(zero, table, blocks); });
  };
  run(float{});
  run(double{});
}

}  // namespace

void muon_direction(CudaStream& stream, const std::vector<MuonGroup>& groups, const StepScalars& scalars,
                    View keep) {
  std::size_t pieces = 0, slots = 0;
  for_each_slot(groups, [&](const MuonSlot& slot, auto&&...) {
    dispatch(cuda::kGpuFullTypes, slot.parameter.dtype, [](auto) {});  // throws UsageError for other types
    pieces += pieces_of(slot);
    ++slots;
  });
  if (slots == 0) return;
  const StepPointers pointers(scalars);
  const cuda::Scratch squares(stream, std::max<std::size_t>(pieces, 1) * sizeof(Squares));
  const cuda::Scratch inverse_norms(stream, slots * sizeof(double));
  for_each_table(groups, [&](auto zero, const auto& table, unsigned blocks) {
    launch(stream, blocks, kMuonBlock, sizeof(BlockPartials<double, kMuonBlock>),
           muon_momentum_kernel<decltype(zero)>, table, pointers, squares.as<Squares>());
  });
  NormTable table{};
  unsigned count = 0;
  const auto launch_norms = [&] {
    launch(stream, count, kNormBlock, sizeof(BlockPartials<double, kNormBlock>), muon_norms_kernel, table,
           pointers, squares.as<Squares>(), inverse_norms.as<double>(), keep.as<double>());
    table.first_slot += static_cast<int>(count);
    count = 0;
  };
  for_each_slot(groups, [&](const MuonSlot& slot, const MuonOptions& options, std::uint32_t,
                            std::uint32_t first_piece) {
    table.slots[count++] = {.first_piece = first_piece,
                            .pieces = pieces_of(slot),
                            .rate = options.rate,
                            .keep = MuonKeep(slot, options)};
    if (count == NormTable::kCapacity) launch_norms();
  });
  if (count > 0) launch_norms();
  for_each_table(groups, [&](auto zero, const auto& of_type, unsigned blocks) {
    launch(stream, blocks, kMuonBlock, 0, muon_direction_kernel<decltype(zero)>, of_type, pointers,
           inverse_norms.as<double>());
  });
}

void muon_update(CudaStream& stream, const std::vector<MuonGroup>& groups, const StepScalars& scalars,
                 ConstView keep) {
  for_each_table(groups, [&](auto zero, const auto& table, unsigned blocks) {
    launch(stream, blocks, kMuonBlock, 0, muon_update_kernel<decltype(zero)>, table, StepPointers(scalars),
           keep.as<double>());
  });
}

}  // namespace convoy::kernels

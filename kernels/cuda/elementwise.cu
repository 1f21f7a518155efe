// kernels/elementwise.h on the GPU: `map` applies the functions of kernels/shared to the arrays.
#include "convoy/kernels/elementwise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/cuda/primitives/map.h"
#include "convoy/kernels/cuda/primitives/multi_tensor.h"
#include "convoy/kernels/cuda/primitives/normal_distribution.h"
#include "convoy/kernels/shared/elementwise_functions.h"

namespace convoy::kernels {

void add(CudaStream& stream, ConstView x, ConstView y, View z, double a, double b) {
  cuda::map(stream, x, y, z, WeightedSum{a, b});
}

void scale(CudaStream& stream, ConstView x, double a, GradView y) { cuda::map(stream, x, y, Multiple{a}); }

void add_scalar(CudaStream& stream, ConstView x, double a, View y) { cuda::map(stream, x, y, AddScalar{a}); }

void unary_forward(CudaStream& stream, UnaryOp op, ConstView x, View y, UnaryNumbers numbers) {
  dispatch_unary<cuda::GpuMath>(op, numbers, [&](auto function) {
    cuda::map(stream, x, y, UnaryForward<decltype(function)>{function});
  });
}

void unary_backward(CudaStream& stream, UnaryOp op, ConstView dy, ConstView saved, GradView dx,
                    UnaryNumbers numbers) {
  dispatch_unary<cuda::GpuMath>(op, numbers, [&](auto function) {
    cuda::map(stream, dy, saved, dx, UnaryBackward<decltype(function)>{function});
  });
}

// cast, fill and assign on the GPU (kernels/elementwise.h). cast and fill convert between any two element
// types; assign moves bytes.

namespace {

template <class To>
struct Convert {
  template <class From>
  __device__ To operator()(From x) const {
    return converted<To>(x);
  }
};

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

using Word = unsigned long long;

constexpr int kAssignBlock = 256;
constexpr int kAssignPiece = kAssignBlock * cuda::kVectorBytes;  // bytes per block: one pack per thread

struct AssignSlot {
  unsigned char* to;
  const unsigned char* from;  // null: every word is `value`
  Word value;                 // an element, repeated
  std::int64_t numel;         // bytes
  std::uint32_t first_block;
};

__global__ void __launch_bounds__(kAssignBlock) assign_kernel(const cuda::SlotTable<AssignSlot> table) {
  const cuda::Piece piece = cuda::piece_of_block<kAssignPiece>(table);
  const AssignSlot& slot = table.slots[piece.slot];
  unsigned char* const to = slot.to + piece.begin;
  const unsigned char* const from = slot.from != nullptr ? slot.from + piece.begin : nullptr;
  const bool in_packs = cuda::is_aligned(to) && cuda::is_aligned(from);
  const int pack_bytes = in_packs ? piece.count / cuda::kVectorBytes * cuda::kVectorBytes : 0;
  const auto thread = static_cast<int>(threadIdx.x);
  if (const int begin = thread * cuda::kVectorBytes; begin < pack_bytes) {
    using Words = cuda::Pack<Word, 2>;
    *reinterpret_cast<Words*>(to + begin) =
        from != nullptr ? *reinterpret_cast<const Words*>(from + begin) : Words{slot.value, slot.value};
  }
  for (int i = pack_bytes + thread; i < piece.count; i += kAssignBlock)
    to[i] = from != nullptr ? from[i] : static_cast<unsigned char>(slot.value >> (i % 8 * 8));
}

/// Returns a word that consists of copies of the value in the element type.
Word repeated(double value, DType dtype) {
  return dispatch(kAllTypes, dtype, [value](auto zero) {
    using T = decltype(zero);
    std::array<T, sizeof(Word) / sizeof(T)> copies;
    copies.fill(converted<T>(value));
    Word word = 0;
    std::memcpy(&word, copies.data(), sizeof(word));
    return word;
  });
}

}  // namespace

void cast(CudaStream& stream, ConstView x, View y) {
  dispatch(kAllTypes, x.dtype, [&](auto from) {
    dispatch(kAllTypes, y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      cuda::launch_map(stream, y.numel(), Convert<To>{}, y.as<To>(), x.as<From>());
    });
  });
}

void fill(CudaStream& stream, double value, View y) {
  dispatch(kAllTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::launch_map(stream, y.numel(), Constant<T>{converted<T>(value)}, y.as<T>());
  });
}

void assign(CudaStream& stream, std::span<const Assignment> arrays) {
  std::vector<AssignSlot> slots;
  for (const Assignment& array : arrays)
    slots.push_back({.to = array.to.as<unsigned char>(),
                     .from = array.from.as<unsigned char>(),
                     .value = repeated(array.value, array.to.dtype),
                     .numel = static_cast<std::int64_t>(array.to.bytes()),
                     .first_block = 0});
  cuda::for_each_table<kAssignPiece>(slots, [&](const auto& table, unsigned blocks) {
    launch(stream, blocks, kAssignBlock, 0, assign_kernel, table);
  });
}

// Dropout on the GPU (kernels/elementwise.h). One Philox draw decides on four adjacent elements of a sample,
// called a quad; each thread processes whole quads. No mask is stored: the backward draws the same words
// again.

namespace {

inline constexpr int kDropoutBlock = 256;  // threads
inline constexpr int kQuad = 4;            // words per Philox draw
inline constexpr std::int64_t kDropoutRows =
    2048;  // maximum gridDim.y, over samples: twice what a GPU runs at once

/// Loads the first `count` elements of a quad. If `as_pack`, loads all four in one aligned access.
template <class T>
__device__ cuda::Pack<T, kQuad> load_quad(bool as_pack, int count, const T* from) {
  if (as_pack) return cuda::load_pack<kQuad>(from);
  cuda::Pack<T, kQuad> quad{};
  for (int k = 0; k < kQuad; ++k)
    if (k < count) quad.values[k] = from[k];
  return quad;
}
template <class T>
__device__ void store_quad(bool as_pack, int count, T* to, const cuda::Pack<T, kQuad>& quad) {
  if (as_pack) return cuda::store_pack(to, quad);
  for (int k = 0; k < kQuad; ++k)
    if (k < count) to[k] = quad.values[k];
}

/// x is [samples, sample_size]. The x dimension of the grid covers the quads of a sample and the y dimension
/// covers the samples, so that no thread divides. If there are more samples than rows of threads, each row
/// takes several samples.
template <GradMode kMode, class T>
__global__ void __launch_bounds__(kDropoutBlock)
    dropout_kernel(std::int64_t samples, std::int64_t sample_size, bool in_packs, Random random,
                   std::uint32_t dropped_below, cuda::compute_t<T> factor, const std::int32_t* ids,
                   const T* x, T* y) {
  const std::int64_t quad = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int count = static_cast<int>(std::min<std::int64_t>(kQuad, sample_size - kQuad * quad));
  if (count <= 0) return;
  const Random draws = random.resolved();
  const std::int64_t rows = std::int64_t{gridDim.y} * blockDim.y;
  for (std::int64_t sample = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; sample < samples;
       sample += rows) {
    const std::int64_t first = sample * sample_size + kQuad * quad;
    const auto in = load_quad(in_packs, count, x + first);
    cuda::Pack<T, kQuad> out;
    if constexpr (kMode == GradMode::accumulate) out = load_quad<T>(in_packs, count, y + first);
    const std::array<std::uint32_t, kQuad> words =
        draws.words(static_cast<std::uint64_t>(ids[sample]), static_cast<std::uint32_t>(quad));
    for (int k = 0; k < kQuad; ++k) {
      using Compute = cuda::compute_t<T>;
      const Compute value = (words[k] >> 8) < dropped_below ? Compute{0} : cuda::widen(in.values[k]) * factor;
      if constexpr (kMode == GradMode::accumulate) {
        out.values[k] = cuda::narrow<T>(cuda::widen(out.values[k]) + value);
      } else {
        out.values[k] = cuda::narrow<T>(value);
      }
    }
    store_quad(in_packs, count, y + first, out);
  }
}

}  // namespace

void dropout(CudaStream& stream, ConstView x, ConstView sample_ids, double p, Random random, GradView y) {
  if (!y.wanted() || y.numel() == 0) return;
  const std::int64_t samples = sample_ids.numel();
  const std::int64_t sample_size = y.numel() / samples;
  const std::int64_t quads = (sample_size + kQuad - 1) / kQuad;
  // Evaluates to_uniform(word) < p in integers: to_uniform() is the upper 24 bits of the word times 2^-24.
  const auto dropped_below = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
  // One thread per quad of a sample, rounded up to a power of two. The other rows of the block take other
  // samples.
  const auto columns = std::bit_ceil(static_cast<unsigned>(std::min<std::int64_t>(quads, kDropoutBlock)));
  const dim3 block(columns, kDropoutBlock / columns);
  const std::int64_t block_rows = (samples + block.y - 1) / block.y;
  const dim3 grid(blocks_for(quads, static_cast<int>(block.x)),
                  static_cast<unsigned>(std::min(block_rows, kDropoutRows)));
  dispatch(cuda::kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool in_packs = sample_size % kQuad == 0 && cuda::is_aligned_for<kQuad>(x.as<T>()) &&
                          cuda::is_aligned_for<kQuad>(y.as<T>());
    const auto kernel = y.mode == GradMode::accumulate ? dropout_kernel<GradMode::accumulate, T>
                                                       : dropout_kernel<GradMode::overwrite, T>;
    launch(stream, grid, block, 0, kernel, samples, sample_size, in_packs, random, dropped_below,
           static_cast<cuda::compute_t<T>>(1 / (1 - p)), sample_ids.as<std::int32_t>(), x.as<T>(), y.as<T>());
  });
}

}  // namespace convoy::kernels

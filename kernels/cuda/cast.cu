// cast, fill and assign on the GPU (kernels/elementwise.h). cast and fill convert between any two element
// types; assign moves bytes.
#include <array>
#include <cstring>
#include <vector>

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/cuda/primitives/map.h"
#include "convoy/kernels/cuda/primitives/multi_tensor.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {
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

}  // namespace convoy::kernels

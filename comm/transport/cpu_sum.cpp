#include "convoy/comm/transport/cpu_sum.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

/// The accumulator type of T. i32 uses unsigned integers, whose overflow is defined.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>, float,
                                std::conditional_t<std::is_same_v<T, std::int32_t>, std::uint32_t, T>>;

// Elements whose partial sums fit the L1 cache: whole lines of a checksum.
constexpr std::int64_t kBlock = 1024;

/// Returns elements [at, at + n) of a part, after its checksum has read them from memory.
template <class T>
const T* block_of(const SumPart& part, std::int64_t at, std::int64_t n) {
  const T* const block = part.view.as<T>() + at;
  if (part.checksum != nullptr) part.checksum->add(block, static_cast<std::size_t>(n) * sizeof(T));
  return block;
}

template <class T, class Out>
void sum_blocks(std::span<const SumPart> parts, const View& sum, Checksum* of_sum, const View& copy) {
  std::array<Wide<T>, kBlock> sums;
  Out* const out = sum.as<Out>();
  for (std::int64_t at = 0; at < sum.numel(); at += kBlock) {
    const std::int64_t n = std::min(kBlock, sum.numel() - at);
    const T* const first = block_of<T>(parts.front(), at, n);
    if (parts.size() == 1) {
      for (std::int64_t i = 0; i < n; ++i) sums[static_cast<std::size_t>(i)] = static_cast<Wide<T>>(first[i]);
    } else {
      const T* const second = block_of<T>(parts[1], at, n);
      for (std::int64_t i = 0; i < n; ++i)
        sums[static_cast<std::size_t>(i)] = static_cast<Wide<T>>(first[i]) + static_cast<Wide<T>>(second[i]);
      for (const SumPart& part : parts.subspan(2)) {
        const T* const next = block_of<T>(part, at, n);
        for (std::int64_t i = 0; i < n; ++i)
          sums[static_cast<std::size_t>(i)] += static_cast<Wide<T>>(next[i]);
      }
    }
    // Stores only after all parts of the block have been read: `out` may be one of them.
    for (std::int64_t i = 0; i < n; ++i) out[at + i] = static_cast<Out>(sums[static_cast<std::size_t>(i)]);
    const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(Out);
    if (copy.data != nullptr) {
      of_sum->copy(out + at, copy.as<Out>() + at, bytes);
    } else if (of_sum != nullptr) {
      of_sum->add(out + at, bytes);
    }
  }
}

/// Whether parts of type T can be summed into Out: half precision into f32 and back, otherwise equal types.
template <class T, class Out>
constexpr bool kSumsInto =
    std::is_same_v<T, Out> || std::is_same_v<Out, Wide<T>> || std::is_same_v<T, Wide<Out>>;

}  // namespace

void sum_in_order(std::span<const SumPart> parts, View out, Checksum* of_out, View copy) {
  const DType dtype = parts.front().view.dtype;
  dispatch(kAllTypes, dtype, [&](auto zero) {
    dispatch(kAllTypes, out.dtype, [&](auto zero_of_out) {
      using T = decltype(zero);
      using Out = decltype(zero_of_out);
      if constexpr (std::is_same_v<T, std::uint8_t> || !kSumsInto<T, Out>) {
        fail<UsageError>("cannot sum {} into {}", to_string(dtype), to_string(out.dtype));
      } else {
        sum_blocks<T, Out>(parts, out, of_out, copy);
      }
    });
  });
}

}  // namespace convoy::dist

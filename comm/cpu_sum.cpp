#include "comm/cpu_sum.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/runtime/check.h"
#include "kernels/runtime/parallel.h"

namespace convoy {
namespace {

/// What is added in the place of T. Unsigned integers wrap around where signed ones have no meaning.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>, float,
                                std::conditional_t<std::is_same_v<T, std::int32_t>, std::uint32_t, T>>;

constexpr std::int64_t kBlock = 1024;   // partial sums that stay in the nearest cache
constexpr std::int64_t kGrain = 65536;  // elements that are worth another thread

template <class T, class Out>
void sum_range(std::span<const ConstView> parts, Out* out, std::int64_t begin, std::int64_t end) {
  std::array<Wide<T>, kBlock> sums;
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t n = std::min(kBlock, end - at);
    const T* const first = parts.front().as<T>() + at;
    for (std::int64_t i = 0; i < n; ++i) sums[static_cast<std::size_t>(i)] = static_cast<Wide<T>>(first[i]);
    for (const ConstView& part : parts.subspan(1)) {
      const T* const next = part.as<T>() + at;
      for (std::int64_t i = 0; i < n; ++i) sums[static_cast<std::size_t>(i)] += static_cast<Wide<T>>(next[i]);
    }
    // Not before all parts of this block were read: one of them may lie here.
    for (std::int64_t i = 0; i < n; ++i) out[at + i] = static_cast<Out>(sums[static_cast<std::size_t>(i)]);
  }
}

/// Sums of halves may be kept in f32, and sums of f32 be rounded to halves; else the types are the same.
template <class T, class Out>
constexpr bool kSumsInto =
    std::is_same_v<T, Out> || std::is_same_v<Out, Wide<T>> || std::is_same_v<T, Wide<Out>>;

}  // namespace

void sum_in_order(const CpuStream& stream, std::span<const ConstView> parts, View out) {
  dispatch(parts.front().dtype, [&](auto zero) {
    dispatch(out.dtype, [&](auto zero_of_out) {
      using T = decltype(zero);
      using Out = decltype(zero_of_out);
      if constexpr (std::is_same_v<T, std::uint8_t> || !kSumsInto<T, Out>) {
        fail<UsageError>("no sum of {} is {}", name_of(parts.front().dtype), name_of(out.dtype));
      } else {
        parallel_for(stream, out.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
          sum_range<T>(parts, out.as<Out>(), begin, end);
        });
      }
    });
  });
}

}  // namespace convoy

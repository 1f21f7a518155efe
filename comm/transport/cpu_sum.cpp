#include "convoy/comm/transport/cpu_sum.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::dist {
namespace {

/// The accumulator type of T. i32 uses unsigned integers, whose overflow is defined.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>, float,
                                std::conditional_t<std::is_same_v<T, std::int32_t>, std::uint32_t, T>>;

constexpr std::int64_t kBlock = 1024;   // elements whose partial sums fit the L1 cache
constexpr std::int64_t kGrain = 65536;  // minimum number of elements per thread

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
    // Stores only after all parts of the block have been read: `out` may be one of them.
    for (std::int64_t i = 0; i < n; ++i) out[at + i] = static_cast<Out>(sums[static_cast<std::size_t>(i)]);
  }
}

/// Whether parts of type T can be summed into Out: half precision into f32 and back, otherwise equal types.
template <class T, class Out>
constexpr bool kSumsInto =
    std::is_same_v<T, Out> || std::is_same_v<Out, Wide<T>> || std::is_same_v<T, Wide<Out>>;

}  // namespace

void sum_in_order(const CpuStream& stream, std::span<const ConstView> parts, View out) {
  dispatch(kAllTypes, parts.front().dtype, [&](auto zero) {
    dispatch(kAllTypes, out.dtype, [&](auto zero_of_out) {
      using T = decltype(zero);
      using Out = decltype(zero_of_out);
      if constexpr (std::is_same_v<T, std::uint8_t> || !kSumsInto<T, Out>) {
        fail<UsageError>("cannot sum {} into {}", to_string(parts.front().dtype), to_string(out.dtype));
      } else {
        parallel_for(stream, out.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
          sum_range<T>(parts, out.as<Out>(), begin, end);
        });
      }
    });
  });
}

}  // namespace convoy::dist

// kernels/gather.h on the CPU. A sum sorts pairs of destination and position. Threads then take ranges of
// destinations, so that each element of the result is written once, whether it has terms or not.
#include "convoy/kernels/gather.h"

#include <algorithm>
#include <vector>

#include "convoy/kernels/cpu/primitives/element.h"
#include "convoy/kernels/cpu/primitives/map.h"

namespace convoy::kernels {
namespace {

/// The destination of a term in the upper half, and its position in the lower.
using Pair = std::uint64_t;
std::int64_t destination_of(Pair pair) { return static_cast<std::int64_t>(pair >> 32); }
std::int64_t position_of(Pair pair) { return static_cast<std::int64_t>(pair & 0xffffffffu); }

Pair pair_of(std::int64_t destination, std::int64_t position) {
  return static_cast<Pair>(destination) << 32 | static_cast<Pair>(position);
}

constexpr std::int64_t kColumnsAtOnce = 256;  // their f64 sums fit the L1 cache

/// Sets to = the sum of the rows of `from` at the positions of the terms [first, last), or adds it.
template <class T>
void sum_rows_at(const Pair* first, const Pair* last, std::int64_t columns, GradMode mode, const T* from,
                 T* to) {
  if (last - first == 1) {
    map_range(
        mode, 0, columns, [](auto value) { return value; }, to, from + position_of(*first) * columns);
    return;
  }
  double sums[kColumnsAtOnce];
  for (std::int64_t c0 = 0; c0 < columns; c0 += kColumnsAtOnce) {
    const std::int64_t count = std::min(kColumnsAtOnce, columns - c0);
    std::fill_n(sums, count, 0.0);
    for (const Pair* term = first; term != last; ++term) {
      const T* const row = from + position_of(*term) * columns + c0;
      for (std::int64_t c = 0; c < count; ++c) sums[c] += static_cast<double>(widened(row[c]));
    }
    if (mode == GradMode::accumulate)
      for (std::int64_t c = 0; c < count; ++c) sums[c] += static_cast<double>(widened(to[c0 + c]));
    for (std::int64_t c = 0; c < count; ++c) to[c0 + c] = converted<T>(sums[c]);
  }
}

/// Computes dx [outer, destinations, columns] from dy [outer, terms, columns]. Sorts the pairs.
void sum_into(CpuStream& stream, std::vector<Pair>& pairs, std::int64_t outer, std::int64_t destinations,
              std::int64_t columns, const ConstView& dy, const GradView& dx) {
  std::sort(pairs.begin(), pairs.end());
  const auto terms = static_cast<std::int64_t>(pairs.size());
  const auto first_at = [&](std::int64_t destination) {
    return std::lower_bound(pairs.data(), pairs.data() + terms, pair_of(destination, 0));
  };
  dispatch(kCpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto sum_range = [&](std::int64_t slab, std::int64_t begin, std::int64_t end) {
      const T* const from = dy.as<T>() + slab * terms * columns;
      T* const to = dx.as<T>() + slab * destinations * columns;
      const Pair* const stop = first_at(end);
      std::int64_t next = begin;
      for (const Pair* first = first_at(begin); first != stop;) {
        const std::int64_t destination = destination_of(*first);
        const Pair* last = first + 1;
        while (last != stop && destination_of(*last) == destination) ++last;
        if (dx.mode == GradMode::overwrite) std::fill(to + next * columns, to + destination * columns, T{});
        sum_rows_at(first, last, columns, dx.mode, from, to + destination * columns);
        next = destination + 1;
        first = last;
      }
      if (dx.mode == GradMode::overwrite) std::fill(to + next * columns, to + end * columns, T{});
    };
    parallel_for(stream, outer * destinations, item_grain(columns),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end;) {
                     const std::int64_t slab = i / destinations, start = i % destinations;
                     const std::int64_t stop = std::min(destinations, start + end - i);
                     sum_range(slab, start, stop);
                     i += stop - start;
                   }
                 });
  });
}

}  // namespace

void index_select_forward(CpuStream& stream, ConstView x, ConstView indices, View y) {
  if (y.numel() == 0) return;
  const std::int64_t rows = y.shape[1], columns = y.shape[2];
  const auto* const chosen = indices.as<std::int32_t>();
  dispatch(kAllTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, y.shape[0] * rows, item_grain(columns), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        std::copy_n(x.as<T>() + (row / rows * x.shape[1] + chosen[row % rows]) * columns, columns,
                    y.as<T>() + row * columns);
    });
  });
}

void index_select_backward(CpuStream& stream, ConstView dy, ConstView indices, GradView dx) {
  if (!dx.wanted() || dx.numel() == 0) return;
  const auto* const chosen = indices.as<std::int32_t>();
  std::vector<Pair> pairs(static_cast<std::size_t>(indices.numel()));
  for (std::size_t k = 0; k < pairs.size(); ++k) pairs[k] = pair_of(chosen[k], static_cast<std::int64_t>(k));
  sum_into(stream, pairs, dx.shape[0], dx.shape[1], dx.shape[2], dy, dx);
}

}  // namespace convoy::kernels

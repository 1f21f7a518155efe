// What is measured: a collective on so many elements, as nccl-tests define its sizes and rates.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/runtime/dtype.h"

namespace convoy::bench {

enum class Collective : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast };

/// Where a collective's result goes: to memory of its own, or where its input lies.
enum class Way : std::uint8_t { out_of_place, in_place };
inline constexpr std::array kWays = {Way::out_of_place, Way::in_place};

const std::vector<std::string>& collective_names();
std::string name_of(Collective collective);
/// UsageError, with the nearest name, for what is none.
Collective parse_collective(const std::string& name);

constexpr bool adds(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter;
}
constexpr bool has_root(Collective collective) { return collective == Collective::broadcast; }

/// Bytes that each rank's link moves in each direction for one byte of size(B), at the least: the factor from
/// algbw to busbw. 0 for one rank, but for broadcast (1).
double bus_factor(Collective collective, int ranks);

/// One line of the table.
struct Case {
  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  int root = -1;  // -1: has none
  int ranks = 1;
  std::int64_t count = 0;  // elements, of reduce_scatter and all_gather those of one rank's part

  std::int64_t in_count() const;   // that each rank gives
  std::int64_t out_count() const;  // that each rank gets
  /// Column size(B): of the larger of what a rank gives and gets.
  std::int64_t bytes() const;
};

/// As many whole elements as `bytes` hold: for reduce_scatter and all_gather the same for each rank.
Case make_case(Collective collective, DType dtype, int root, int ranks, std::int64_t bytes);

}  // namespace convoy::bench

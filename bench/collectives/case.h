// A benchmark case: one collective at one size, with sizes and bandwidths as defined by nccl-tests.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "convoy/kernels/base/dtype.h"

namespace convoy::bench {

enum class Collective : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast };

/// Whether a collective writes its result to separate memory or over its input.
enum class Placement : std::uint8_t { out_of_place, in_place };
inline constexpr std::array kPlacements = {Placement::out_of_place, Placement::in_place};

/// Returns the names of all collectives, in the order of the enum.
const std::vector<std::string>& collective_names();
std::string to_string(Collective collective);
/// Returns the collective with this name. Throws UsageError, with the nearest name, if there is none.
Collective parse_collective(const std::string& name);

/// Returns whether the collective reduces (sums) values.
constexpr bool adds(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter;
}
constexpr bool has_root(Collective collective) { return collective == Collective::broadcast; }

/// Returns the factor from algbw to busbw: the minimum number of bytes that each rank's link moves in each
/// direction per byte of size(B). It is 0 for one rank, except for broadcast (1).
double bus_factor(Collective collective, int ranks);

/// One row of the table: a collective with its type, root and size.
struct Case {
  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  int root = -1;  // -1 if the collective has no root
  int ranks = 1;
  /// Elements; for reduce_scatter and all_gather, elements of one rank's shard.
  std::int64_t count = 0;

  /// Returns the number of input elements of each rank.
  std::int64_t in_count() const;
  /// Returns the number of output elements of each rank.
  std::int64_t out_count() const;
  /// Returns the column size(B): the bytes of the larger of input and output.
  std::int64_t bytes() const;
};

/// Returns a case with as many whole elements as fit in `bytes`. For reduce_scatter and all_gather, the count
/// is rounded down so that all ranks have shards of equal size.
Case make_case(Collective collective, DType dtype, int root, int ranks, std::int64_t bytes);

}  // namespace convoy::bench

// The flags of convoy-bench-allreduce, which are nccl-tests' where they mean the same here, and the benchmark
// cases that they select.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convoy/apps/flags/command_line.h"
#include "convoy/apps/flags/compute.h"
#include "convoy/apps/ranks/job.h"
#include "convoy/comm/core/collective.h"
#include "convoy/kernels/base/dtype.h"

namespace convoy::bench {

using Collective = dist::CollectiveOp;  // of which only those on views are measured

/// Whether a collective writes its result to separate memory or over its input.
enum class Placement : std::uint8_t { out_of_place, in_place };
inline constexpr std::array kPlacements = {Placement::out_of_place, Placement::in_place};

/// Returns the name in flags and tables: "all_reduce".
std::string to_string(Collective collective);

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

/// The parsed and validated flags.
struct CollectivePlan {
  std::vector<Collective> collectives;
  std::vector<DType> dtypes;
  std::int64_t min_bytes = 0, max_bytes = 0;
  std::vector<std::int64_t> sizes;  // bytes, ascending
  std::int64_t step = 0;            // bytes, or the factor if is_factor
  bool is_factor = false;
  std::int64_t iters = 20, warmup_iters = 5, checks = 1;
  std::optional<int> root;  // empty: every rank in turn
  bool percentiles = false;
  std::int64_t mpi_rounds = 0;  // 0: MPI is not measured
  std::int64_t ranks_per_process = 1;
};

/// The flags as given, and those of their values that need no parsing in `plan`.
struct CollectiveOptions {
  CollectivePlan plan;
  std::string minbytes = "32M", maxbytes = "32M", stepbytes = "1M";
  std::optional<std::int64_t> stepfactor;
  std::string op = "sum", datatype = "float", root = "0";
  std::string collective = "all_reduce";
  bool beside_mpi = false;
  std::int64_t rounds = 5;
  std::string json, csv;
  std::int64_t ngpus = 1, nthreads = 1;
  ComputeOptions compute;
  JobOptions job;
};

/// Returns the command line that parses into `options`, which must outlive it.
CommandLine collective_command_line(CollectiveOptions& options);

/// Parses a size in bytes with an optional binary suffix: "8", "32K", "128M", "1G". Throws UsageError, naming
/// `flag`, if the text is not such a size.
std::int64_t parse_bytes(const char* flag, const std::string& text);

/// Returns the sizes from `min_size` to at most `max_size`. Each is the previous one times `factor`, or plus
/// `step` if there is no factor.
std::vector<std::int64_t> sizes_between(std::int64_t min_size, std::int64_t max_size, std::int64_t step,
                                        std::optional<std::int64_t> factor);

/// Returns the name of the type in nccl-tests: "float", "bfloat16".
std::string nccl_type_name(DType dtype);

/// Returns the plan for the flags. Sets --devices to the ranks per process that -g and -t ask for. Throws UsageError if
/// a value does not parse, or flags contradict each other.
CollectivePlan make_plan(CollectiveOptions& options, const CommandLine& line);

/// Returns the cases of one collective, in the order of the table's rows. Throws UsageError if the root is
/// not a rank.
std::vector<Case> cases_of(const CollectivePlan& plan, Collective collective, int ranks);

}  // namespace convoy::bench

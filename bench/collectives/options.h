// The flags of convoy-bench-allreduce, which are nccl-tests' where they mean the same here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/collectives/case.h"
#include "convoy/apps/common/command_line.h"
#include "convoy/apps/common/compute.h"
#include "convoy/apps/ranks/job.h"

namespace convoy::bench {

/// The values of the flags, as given.
struct CollectiveOptions {
  std::string minbytes = "32M", maxbytes = "32M", stepbytes = "1M";
  std::optional<std::int64_t> stepfactor;
  std::int64_t iters = 20, warmup_iters = 5, check = 1;
  std::string op = "sum", datatype = "float", root = "0";
  std::string average = "1", blocking = "0";
  std::string collective = "all_reduce";
  bool percentiles = false;
  bool beside_mpi = false;
  std::int64_t rounds = 5;
  std::string json;
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

/// How the times of all ranks are reduced to one. The values are those of the flag -a of nccl-tests.
enum class OverRanks : std::uint8_t { rank_0, mean, minimum, maximum };
/// What the host waits for after each collective: nothing, completion on all ranks, or completion on this
/// rank.
enum class Blocking : std::uint8_t { none, with_barrier, own };

/// The parsed and validated flags.
struct CollectivePlan {
  std::vector<Collective> collectives;
  std::vector<DType> dtypes;
  std::vector<std::int64_t> sizes;  // bytes, ascending
  std::int64_t step = 0;            // bytes, or the factor if is_factor
  bool is_factor = false;
  int iters = 20, warmup_iters = 5, checks = 1;
  OverRanks over_ranks = OverRanks::mean;
  Blocking blocking = Blocking::none;
  std::optional<int> root;  // empty: every rank in turn
  bool percentiles = false;
  int mpi_rounds = 0;  // 0: MPI is not measured
};

/// Returns the plan for the flags. Throws UsageError if a value does not parse or flags contradict each
/// other.
CollectivePlan make_plan(const CollectiveOptions& options, const CommandLine& line);

/// Returns the cases of one collective, in the order of the table's rows. Throws UsageError if the root is
/// not a rank.
std::vector<Case> cases_of(const CollectivePlan& plan, Collective collective, int ranks);

}  // namespace convoy::bench

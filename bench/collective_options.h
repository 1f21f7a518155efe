// The flags of convoy-bench-allreduce, which are nccl-tests' where they mean the same here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/compute.h"
#include "apps/job.h"
#include "bench/collective_case.h"

namespace convoy::bench {

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

/// The table of flags over `options`, which must outlive it.
CommandLine collective_command_line(CollectiveOptions& options);

/// 1024 a K: "8", "32K", "128M", "1G". UsageError that names the flag.
std::int64_t parse_bytes(const char* flag, const std::string& text);

/// Every size from `least` to at most `most`, each the one before times `factor`, or plus `step` where there
/// is no factor.
std::vector<std::int64_t> sizes_between(std::int64_t least, std::int64_t most, std::int64_t step,
                                        std::optional<std::int64_t> factor);

/// As nccl-tests call it: "float", "bfloat16".
std::string nccl_name_of(DType dtype);

/// How one time is made of all ranks': nccl-tests' numbers.
enum class OverRanks : std::uint8_t { rank_0, mean, least, most };
/// What the host does after each collective: nothing, wait for it and for all ranks, wait for it.
enum class Blocking : std::uint8_t { none, with_barrier, own };

/// The flags, read.
struct CollectivePlan {
  std::vector<Collective> collectives;
  std::vector<DType> dtypes;
  std::vector<std::int64_t> sizes;  // bytes, ascending
  std::int64_t step = 0;            // bytes, or the factor
  bool is_factor = false;
  int iters = 20, warmup_iters = 5, checks = 1;
  OverRanks over_ranks = OverRanks::mean;
  Blocking blocking = Blocking::none;
  std::optional<int> root;  // none: all of them
  bool percentiles = false;
  int mpi_rounds = 0;  // 0: not beside MPI
};

/// UsageError for what does not parse, or contradicts itself.
CollectivePlan make_plan(const CollectiveOptions& options, const CommandLine& line);

/// All lines of one collective's tables, in order. UsageError for a root that is no rank.
std::vector<Case> cases_of(const CollectivePlan& plan, Collective collective, int ranks);

}  // namespace convoy::bench

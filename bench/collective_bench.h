// The measurement itself: warm-up, windows, times of all ranks, right results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/collective_carrier.h"
#include "bench/collective_data.h"
#include "bench/collective_options.h"

namespace convoy::bench {

/// What MPI took for the same, in turn with ours.
struct BesideMpi {
  double seconds = 0;  // of one collective, the median of the rounds
  // Of a round: MPI's time over ours.
  double ratio = 0, lowest = 0, highest = 0;
  int rounds = 0;
  std::optional<std::int64_t> wrong;
};

struct Percentiles {
  double p50 = 0, p99 = 0;  // seconds
};

struct WayResult {
  double seconds = 0;                 // of one collective; beside MPI the median of the rounds
  std::optional<std::int64_t> wrong;  // elements, on all ranks together; none: not checked
  std::optional<Percentiles> singles;
  std::optional<BesideMpi> mpi;
};

struct RowResult {
  Case one;
  WayResult out_of_place, in_place;

  const WayResult& of(Way way) const { return way == Way::in_place ? in_place : out_of_place; }
};

/// bytes / second; 0 for no time.
double algorithm_bandwidth(const Case& one, double seconds);
double bus_bandwidth(const Case& one, double seconds);

/// The smallest value that at least `share` of them do not exceed. Of at least one.
double percentile(std::vector<double> values, double share);

/// What nccl-tests' -a makes of one number of each rank.
double over_ranks(OverRanks how, std::span<const double> by_rank);

/// One rank's end. Every rank makes the same calls, and gets the same results.
class CollectiveBench {
 public:
  /// What is measured, on its device; `numbers` carries a few from rank to rank in the CPU's memory, and may
  /// be the same. `mpi`: null where nothing is beside.
  CollectiveBench(const CollectivePlan& plan, Communicator& measured, Communicator& numbers,
                  MpiCollectives* mpi, int threads);

  /// All cases, in turn; `show` sees each row as it comes. UsageError where a case cannot be checked.
  std::vector<RowResult> run(const std::vector<Case>& cases,
                             const std::function<void(const RowResult&)>& show);

 private:
  WayResult measure(const Case& one, Way way, CollectiveData& data);
  /// A collective's seconds, of `iters` launched one after another.
  double window(Carrier& carrier, const Case& one, Way way, const CollectiveData& data);
  Percentiles time_singles(const Case& one, Way way, const CollectiveData& data);
  std::int64_t check_results(Carrier& carrier, const Case& one, Way way, CollectiveData& data);
  void settle(const Case& one, const CollectiveData& data);
  void launch(Carrier& carrier, const Case& one, Way way, const CollectiveData& data);
  std::vector<double> of_all_ranks(std::span<const double> mine);

  const CollectivePlan& plan_;
  Communicator& comm_;
  Communicator& numbers_;
  std::unique_ptr<Carrier> own_, mpi_;
  int threads_;
  std::uint32_t round_ = 0;  // of data
};

}  // namespace convoy::bench

// Measures collectives: warm-up, timed windows, times over all ranks, and result checks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/collectives/backend.h"
#include "bench/collectives/data.h"
#include "bench/collectives/options.h"

namespace convoy::bench {

/// The time of MPI's collective on the same data, measured in alternation with Convoy's.
struct MpiBaseline {
  /// Time of one collective: the median over the rounds.
  double seconds = 0;
  /// MPI's time divided by Convoy's within a round: median, minimum and maximum over the rounds.
  double ratio = 0, lowest = 0, highest = 0;
  int rounds = 0;
  /// Wrong elements on all ranks; empty if not checked.
  std::optional<std::int64_t> wrong;
};

/// Percentiles of the times of single collectives, in seconds.
struct Percentiles {
  double p50 = 0, p99 = 0;
};

/// The result of a case with one placement.
struct PlacementResult {
  /// Time of one collective: the median over the rounds, of which there is one without MPI.
  double seconds = 0;
  /// Wrong elements on all ranks; empty if not checked.
  std::optional<std::int64_t> wrong;
  /// Times of single collectives; empty unless percentiles were requested.
  std::optional<Percentiles> singles;
  /// Empty unless MPI was measured too.
  std::optional<MpiBaseline> mpi;
};

/// The results of a case with both placements.
struct RowResult {
  Case one;
  PlacementResult out_of_place, in_place;

  const PlacementResult& of(Placement placement) const {
    return placement == Placement::in_place ? in_place : out_of_place;
  }
};

/// Returns algbw in bytes per second; 0 if `seconds` is 0.
double algorithm_bandwidth(const Case& one, double seconds);
/// Returns busbw in bytes per second: algbw times bus_factor().
double bus_bandwidth(const Case& one, double seconds);

/// Returns the nearest-rank percentile: the smallest value that is not exceeded by at least the fraction
/// `share` of the values. `values` must not be empty.
double percentile(std::vector<double> values, double share);

/// Reduces one number per rank as specified by the flag -a of nccl-tests.
double over_ranks(OverRanks how, std::span<const double> by_rank);

/// The benchmark on one rank. All ranks must make the same calls, and all get the same results. Not
/// thread-safe.
class CollectiveBench {
 public:
  /// Measures the collectives of `measured` on its device. `control` exchanges times and error counts in host
  /// memory, and may be the same communicator. `mpi` is the baseline, or null. `threads` is the number of CPU
  /// threads that fill and check data. All references must outlive this object.
  CollectiveBench(const CollectivePlan& plan, dist::Communicator& measured, dist::Communicator& control,
                  dist::MpiCollectives* mpi, int threads);

  /// Measures all cases in order, and calls `show` with each row as soon as it is measured. Collective call.
  /// Throws UsageError if the results of a case cannot be checked exactly.
  std::vector<RowResult> run(const std::vector<Case>& cases,
                             const std::function<void(const RowResult&)>& show);

 private:
  PlacementResult measure(const Case& one, Placement placement, CollectiveData& data);
  /// Returns the seconds per collective of a window of `iters` collectives launched back to back.
  double window(Backend& backend, const Case& one, Placement placement, const CollectiveData& data);
  /// Times single collectives, each after a barrier, until its last rank has completed.
  Percentiles time_singles(const Case& one, Placement placement, const CollectiveData& data);
  /// Runs and checks `plan.checks` collectives; returns the wrong elements on all ranks.
  std::int64_t check_results(Backend& backend, const Case& one, Placement placement, CollectiveData& data);
  /// Completes the collectives whose signatures a GPU communicator compares between ranks.
  void warm_up_communicator(const Case& one, const CollectiveData& data);
  void launch(Backend& backend, const Case& one, Placement placement, const CollectiveData& data);
  /// Returns the values of all ranks, ordered by rank.
  std::vector<double> gather_values(std::span<const double> local);

  const CollectivePlan& plan_;
  dist::Communicator& comm_;
  dist::Communicator& control_;
  std::unique_ptr<Backend> own_, mpi_;
  int threads_;
  std::uint32_t round_ = 0;  // of the data values
};

}  // namespace convoy::bench

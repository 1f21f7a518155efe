// Measures collectives: warm-up, timed windows, times over all ranks, and result checks. The data are
// integers whose sums are exact in every data type.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "bench/collectives/options.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/transport/mpi/mpi_communicator.h"
#include "convoy/engine/tensor/tensor.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy::bench {

/// Returns the largest input value of a rank. It is chosen so that sums over all ranks stay within the range
/// of consecutive integers that the type represents (f64 2^53, i32 2^31, f32 2^24, f16 2^11, bf16 2^8). Such
/// sums are exact in any order of additions and with any number of roundings. Returns 0 if the world size
/// exceeds that range.
std::int64_t largest_value(const Case& one);

/// Returns the value of element `i` of a rank's input in the given round: a hash of rank, element and round,
/// from 0 to `largest`.
std::int64_t value_of(int rank, std::int64_t i, std::uint32_t round, std::int64_t largest);

/// The device memory of one rank for cases of up to a given number of bytes.
class CollectiveData {
 public:
  /// Allocates the memory on `device`. `threads` is the number of CPU threads that fill and check it.
  CollectiveData(const DeviceContext& device, int threads, std::int64_t max_bytes);

  /// Returns the input of the collective. In-place, input and output share memory: if they differ in size,
  /// the smaller one is this rank's shard of the larger one.
  View in(const Case& one, Placement placement, int rank) const;
  /// Returns the output of the collective.
  View out(const Case& one, Placement placement, int rank) const;

  /// Writes the rank's values to in(), and values that are not a valid result to the rest of out(). Blocks
  /// until the device has them.
  void fill(const Case& one, Placement placement, int rank, std::uint32_t round);

  /// Returns the number of elements of `result` that differ from the result expected from the values of
  /// fill() on all ranks in that round. Blocks until the device has been read.
  std::int64_t count_wrong(const Case& one, int rank, std::uint32_t round, ConstView result) const;

 private:
  DeviceContext device_;
  mutable CpuStream host_stream_;
  Tensor first_, second_;  // bytes
};

/// The time of MPI's collective on the same data, measured in alternation with Convoy's.
struct MpiBaseline {
  /// Time of one collective: the median over the rounds.
  double seconds = 0;
  /// MPI's time divided by Convoy's within a round: median, minimum and maximum over the rounds.
  double ratio = 0, lowest = 0, highest = 0;
  std::int64_t rounds = 0;
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

/// The benchmark on one rank. All ranks must make the same calls, and all get the same results. Not
/// thread-safe.
class CollectiveBench {
 public:
  /// Measures the collectives of `measured` on its device. `control` exchanges times and error counts in host
  /// memory, and may be the same communicator. `mpi` is the baseline, or empty. `threads` is the number of
  /// CPU threads that fill and check data. All references must outlive this object.
  CollectiveBench(const CollectivePlan& plan, dist::Communicator& measured, dist::Communicator& control,
                  dist::MpiCollective mpi, int threads);

  /// Measures all cases in order, and calls `show` with each row as soon as it is measured. Collective call.
  /// Throws UsageError if the results of a case cannot be checked exactly.
  std::vector<RowResult> run(const std::vector<Case>& cases,
                             const std::function<void(const RowResult&)>& show);

 private:
  /// Which implementation runs a collective.
  enum class Side : std::uint8_t { convoy, mpi };

  PlacementResult measure(const Case& one, Placement placement, CollectiveData& data);
  /// Returns the seconds per collective of a window of `iters` collectives launched back to back: the mean over the ranks.
  double window(Side side, const Case& one, Placement placement, const CollectiveData& data);
  /// Times single collectives, each after a barrier, until its last rank has completed.
  Percentiles time_singles(const Case& one, Placement placement, const CollectiveData& data);
  /// Runs and checks `plan.checks` collectives; returns the wrong elements on all ranks.
  std::int64_t check_results(Side side, const Case& one, Placement placement, CollectiveData& data);
  /// Completes the collectives whose signatures a GPU communicator compares between ranks.
  void warm_up_communicator(const Case& one, const CollectiveData& data);
  /// Starts one collective. The communicator's all_reduce and broadcast are always in-place, and so is MPI's
  /// broadcast: an out-of-place case copies the input first; for a broadcast only the root copies.
  void launch(Side side, const Case& one, Placement placement, const CollectiveData& data);
  /// Blocks until all launched collectives have completed. Throws the error of a collective that failed.
  void wait(Side side);
  /// Enqueues a copy on the communicator's stream; does nothing if both views are the same memory.
  void copy(ConstView in, View out);
  /// Returns the values of all ranks, ordered by rank.
  std::vector<double> gather_values(std::span<const double> local);

  const CollectivePlan& plan_;
  dist::Communicator& comm_;
  dist::Communicator& control_;
  dist::MpiCollective mpi_;
  Event done_;  // on the communicator's stream
  int threads_;
  std::uint32_t round_ = 0;  // of the data values
};

}  // namespace convoy::bench

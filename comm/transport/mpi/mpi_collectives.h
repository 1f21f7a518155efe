// MPI's own collectives, as a baseline for benchmarks.
#pragma once

#include <memory>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/kernels/base/view.h"

namespace convoy::dist {

/// Collectives of all ranks on the CPU, implemented by MPI's blocking functions. They run in the calling
/// thread and have no deadline; all other use of MPI in this process blocks meanwhile. Every rank must make
/// the same calls. All functions throw PeerError with MPI's message if MPI fails.
///
/// Reductions accept f64, f32 and i32, for which MPI has a type; the other collectives accept any type. `in`
/// and `out` must not overlap, except that they may be identical, or that the smaller view may be this rank's
/// chunk of the larger one.
class MpiCollectives {
 public:
  virtual ~MpiCollectives() = default;
  MpiCollectives() = default;
  MpiCollectives(const MpiCollectives&) = delete;
  MpiCollectives& operator=(const MpiCollectives&) = delete;

  /// Sets `out` to the sum of all `in`.
  virtual void all_reduce(ConstView in, View out) = 0;
  /// Sets `out` [n] to the sum over all ranks of this rank's chunk of `in` [n * size]. If `out` is a chunk of
  /// `in`, MPI stores the sum at the beginning of `in` instead of in `out`.
  virtual void reduce_scatter(ConstView in, View out) = 0;
  /// Sets `out` [n * size] to the concatenation of all `in` [n], in rank order.
  virtual void all_gather(ConstView in, View out) = 0;
  /// Copies `data` of rank `root` to all ranks, in place.
  virtual void broadcast(View data, int root) = 0;
};

/// Returns whether MPI can sum this type; false in a build without MPI.
bool mpi_can_sum(DType dtype);

/// Returns MPI's collectives of all ranks. Throws UsageError if the ranks were not initialized through MPI,
/// or if the build has no MPI; the message begins with `flag`, the command-line flag that requested MPI.
std::unique_ptr<MpiCollectives> make_mpi_collectives(Rendezvous& rendezvous, const char* flag);

}  // namespace convoy::dist

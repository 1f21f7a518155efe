// MPI's own collectives: what a measurement holds ours against. Nothing else uses them.
#pragma once

#include <memory>

#include "comm/rendezvous.h"
#include "kernels/runtime/view.h"

namespace convoy {

/// Collectives of all ranks, on the CPU, in the calling thread, by MPI's blocking calls: so without a
/// deadline, and nothing else that goes through MPI gets on meanwhile. Every rank makes the same calls.
/// PeerError in MPI's words where one fails.
///
/// Sums are of f64, f32 and i32, for which MPI has a type; what only moves takes any. Of views that share
/// memory in and out are the same, or the smaller one is this rank's part of the other, in its place.
class MpiCollectives {
 public:
  virtual ~MpiCollectives() = default;
  MpiCollectives() = default;
  MpiCollectives(const MpiCollectives&) = delete;
  MpiCollectives& operator=(const MpiCollectives&) = delete;

  virtual void all_reduce(ConstView in, View out) = 0;
  /// In place the sum lies at the beginning of `in`, not in `out`: there MPI puts it.
  virtual void reduce_scatter(ConstView in, View out) = 0;  // in: [n size], out: [n]
  virtual void all_gather(ConstView in, View out) = 0;      // in: [n], out: [n size]
  virtual void broadcast(View data, int root) = 0;          // in place
};

/// Whether MPI can add this type.
bool mpi_adds(DType dtype);

/// Every rank calls it. UsageError where the ranks did not meet through MPI, or the build has none; its words
/// begin with `flag`, which asks for it.
std::unique_ptr<MpiCollectives> make_mpi_collectives(Rendezvous& rendezvous, const char* flag);

}  // namespace convoy

// Communicators on the CPU that exchange data through MPI, and MPI's own collectives as a baseline for
// benchmarks.
#pragma once

#include <functional>
#include <memory>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/core/message_links.h"

namespace convoy::dist {

/// Returns a communicator of all ranks that exchanges data through MPI messages. Collective call. Throws
/// UsageError if the ranks were not initialized through MPI, or if the build has no MPI.
std::unique_ptr<Communicator> make_mpi_communicator(Rendezvous& rendezvous, const CommOptions& options = {});

/// Returns only the message links between all ranks. Collective call. Throws the same errors.
std::unique_ptr<MessageLinks> make_mpi_links(Rendezvous& rendezvous);

/// Runs a collective of all ranks on the CPU by MPI's blocking function, in the calling thread and without a
/// deadline; all other use of MPI in this process blocks meanwhile. Every rank must make the same calls.
/// Throws PeerError with MPI's message if MPI fails. `op` is one of
/// - all_reduce: sets `out` to the sum of all `in`;
/// - reduce_scatter: sets `out` [n] to the sum over all ranks of this rank's chunk of `in` [n * size]. If
///   `out` is a chunk of `in`, MPI stores the sum at the beginning of `in` instead;
/// - all_gather: sets `out` [n * size] to the concatenation of all `in` [n], in rank order;
/// - broadcast: copies `out` of rank `root` to all ranks, in place.
///
/// Reductions accept the types of mpi_can_sum(); the other collectives accept any type. `in` and `out` must
/// not overlap, except that they may be identical, or that the smaller view may be this rank's chunk of the
/// larger one.
using MpiCollective = std::function<void(CollectiveOp op, ConstView in, View out, int root)>;

/// Returns whether MPI has a sum of this type (f64, f32 and i32); false in a build without MPI.
bool mpi_can_sum(DType dtype);

/// Returns MPI's collectives of all ranks. Throws UsageError if the ranks were not initialized through MPI,
/// or if the build has no MPI; the message begins with `flag`, the command-line flag that requested MPI.
MpiCollective mpi_collective(Rendezvous& rendezvous, const char* flag);

}  // namespace convoy::dist

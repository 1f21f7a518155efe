// A communicator for ranks that compute on GPUs and exchange data through NCCL.
#pragma once

#include <memory>

#include "convoy/comm/core/communicator.h"

namespace convoy::dist {

/// Returns whether this build has NCCL.
bool nccl_supported();

/// Creates an NCCL communicator on `device`. Collective: every rank of `control` calls it with its own GPU.
///
/// `control` is a CPU communicator that nothing else uses. It carries everything that NCCL cannot: the unique
/// id, texts, collective signatures and failure notifications.
///
/// Collectives run on a stream of the communicator's own. They may be captured in a CudaGraph, which must be
/// destroyed before finish() and before the communicator; abort() does not wait for that. Sums are computed
/// by NCCL: those of f16 and bf16 may be rounded after each addition. With CudaOptions::deterministic they go around
/// a ring (NCCL_ALGO), and another value of the variable is a UsageError.
///
/// The signatures of the first 32 collectives of each kind, or of all with CommOptions::check_always, are
/// compared between ranks before the launch; the host waits for this. Captured collectives are not compared:
/// a capture must not wait, and each rank captures separately. A mismatch that was not compared ends at the
/// timeout.
///
/// A watchdog thread (nccl_watchdog.h) follows the progress of the GPU, in replays too, and polls the other
/// ranks without messages. If a peer fails or does not take part within the timeout, it ends the work in
/// flight with ncclCommAbort.
///
/// Throws UsageError if the build has no NCCL or `device` is not a GPU, and PeerError if a rank does not take
/// part within the timeout.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> control,
                                                     const DeviceContext& device,
                                                     const CommOptions& options = {});

/// Lets several ranks of this host use one GPU, which NCCL refuses for ranks of the same host. Sets
/// NCCL_HOSTID of this process, unless it is set, to a value that no other rank has. Call it on the main
/// thread before the first NCCL communicator is created.
void let_nccl_share_gpus(int rank);

}  // namespace convoy::dist

// Ranks that compute on GPUs, and exchange data through NCCL.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace convoy {

/// Whether this build has NCCL.
bool nccl_supported();

/// Every rank of `control`, a communicator of the CPU, calls it with its GPU. Control carries what NCCL has
/// no way for: how ranks find each other, texts, fingerprints, the news that one has left. Nobody else uses
/// it.
///
/// Collectives run on a stream of their own, and may be recorded in a WorkGraph, which then goes before the
/// communicator. Sums are NCCL's; those of f16 and bf16 may be rounded after each addition.
///
/// The first 32 collectives of each kind, and all of them with CommOptions::check_always, are compared
/// between the ranks before they are launched; the host waits for that. Those that are being recorded are
/// not: a recording may not wait, and each rank makes its own. What differs all the same ends at the
/// deadline. So does whatever waits for a rank that does not come: a thread watches how far the GPU has come,
/// in replays too, and has heard of the other ranks a tenth of a second ago. It ends the work under way, by
/// ncclCommAbort.
///
/// UsageError where the build has no NCCL or the device is no GPU; PeerError where a rank does not come.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> control,
                                                     const Device& device, const CommOptions& options = {});

/// NCCL refuses two ranks on one GPU, unless they say that they are of two hosts: this rank says so from now
/// on, for itself (NCCL_HOSTID, unless that is set). Before any communicator, by the main thread.
void let_nccl_share_gpus(int rank);

}  // namespace convoy

// Reads the state of the ranks of one host from their shared memory and from the kernel.
#pragma once

#include <cstdint>
#include <vector>

#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/cluster/control/host_memory.h"
#include "convoy/comm/cluster/control/rank_status.h"

namespace convoy::dist {

/// Returns the present status of each rank of this host, in rank order. `all` are the ranks of the job.
/// Stores in the memory which processes have died, and of which signal: the kernel knows it only for a
/// moment.
std::vector<RankStatus> observe_host(const HostMemory& memory, const std::vector<RankInfo>& all);

/// Returns "all-reduce 417 (1024 f32), bucket 3": the collective with this number of the communicator at
/// index `communicator` of the slot, as its flight recorder has it.
std::string collective_text(const RankSlot& slot, std::size_t communicator, std::uint64_t number);

}  // namespace convoy::dist

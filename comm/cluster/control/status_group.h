// One status for the ranks that are in the same state, so that an agent's report does not grow with the number of ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/cluster/control/rank_status.h"

namespace convoy::dist {

/// Returns whether the rank needs no attention: it has left, or it runs and has made progress, or moved bytes of
/// files, within `seconds`.
bool is_quiet(const RankStatus& rank, double seconds);

/// Merges the statuses of ranks in the same state: the result has their largest ages, but the smallest
/// RankStatus::progress_seconds, and the others in RankStatus::others. Ranks that are quiet for `quiet_seconds` are in the
/// same state whatever they do. A rank that has failed, died or stopped, or whose stack is known, and the rank `kept`,
/// keep their own status. The result is in the order of the first rank of each status.
std::vector<RankStatus> grouped(std::vector<RankStatus> ranks, double quiet_seconds, int kept);

/// Returns the number of ranks that the statuses describe.
std::size_t count_ranks(const std::vector<RankStatus>& statuses);

/// Returns one status for each rank, in rank order. `all` are the ranks of the job.
std::vector<RankStatus> expanded(const std::vector<RankStatus>& statuses, const std::vector<RankInfo>& all);

}  // namespace convoy::dist

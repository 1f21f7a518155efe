// The connection of a rank to convoy-launch, if that has started it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace convoy {

/// Returns how many times convoy-launch has restarted this job; 0 without it.
int restarts_of_job();

/// Returns whether convoy-launch lets the ranks of this job continue without those that failed (--min-ranks).
bool may_regroup();

/// Asks convoy-launch for a new group, after a peer has failed. `step` is the number of training steps that
/// this rank has completed: the most advanced rank becomes rank 0. Blocks until all other ranks have asked as
/// well, or have ended. Returns the environment variables for the rendezvous of the new group; nullopt if
/// there is none, because too few ranks remain or the job is to stop.
std::optional<std::map<std::string, std::string>> request_group(std::int64_t step);

}  // namespace convoy

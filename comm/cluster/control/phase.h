// The names of the phases of a rank, and sentences about them.
#pragma once

#include <optional>
#include <string_view>

#include "convoy/comm/core/rank_observer.h"

namespace convoy::dist {

/// Returns the name of a phase, as in files: "data".
std::string_view phase_name(Phase phase);
/// Returns the phase of this name; nullopt if there is none.
std::optional<Phase> find_phase(std::string_view name);
/// Returns what a rank does, for messages: "in the data loader", which continues "rank 2 has been".
std::string_view to_string(Phase phase);
/// Returns whether other ranks wait without a time limit for a rank in this phase: it reads or writes files,
/// which may take any time, or it waits for a person.
bool may_take_any_time(Phase phase);

}  // namespace convoy::dist

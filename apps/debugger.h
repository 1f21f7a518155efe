// A debugger for one rank of several.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/rendezvous.h"

namespace convoy {

/// Where --wait-debugger names a rank: that one says on stderr how to attach a debugger to it, and waits for
/// one; the others wait for it, for a day at most. All ranks call it, flag or none. UsageError, on all of
/// them alike, where they were given different ranks, or one that there is not.
void wait_for_debugger(const char* program, std::optional<std::int64_t> asked, Rendezvous& rendezvous,
                       const std::string& comm);

/// What keeps a user's debugger away from a process that is not its child, and how to let it in; "" where
/// nothing does. scope: what /proc/sys/kernel/yama/ptrace_scope says, "" where there is no such file.
std::string debugger_obstacle(const std::string& scope, bool is_root);

}  // namespace convoy

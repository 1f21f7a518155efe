// Support for attaching a debugger to one rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "convoy/comm/bootstrap/rendezvous.h"

namespace convoy {

/// Implements --wait-debugger. The rank `debugged` prints to stderr how to attach a debugger to it and blocks
/// until one is attached; the other ranks wait for it without a time limit. Collective: every rank calls it,
/// with or without the flag. Throws UsageError on all ranks if their flags differ or the rank does not exist.
void wait_for_debugger(const char* program, std::optional<std::int64_t> debugged,
                       dist::Rendezvous& rendezvous, const std::string& comm);

/// Returns why the kernel does not let the user attach a debugger to a process that is not its child, and
/// what to do; "" if the kernel allows it. `scope` is the content of /proc/sys/kernel/yama/ptrace_scope, ""
/// without that file.
std::string debugger_obstacle(const std::string& scope, bool is_root);

}  // namespace convoy

// The agent of convoy-launch on one host: it starts the ranks of this host, passes on their output and how
// they end, and ends them when the launcher does.
#pragma once

namespace convoy::launcher {

/// Runs the agent: reads messages from standard input and writes messages to standard output
/// (apps/cluster/launcher/launcher_messages.h). Returns 0 after all ranks have ended and the launcher has
/// closed the input. If the input is closed earlier, asks the ranks to stop by SIGTERM, and kills those that
/// remain after the grace period.
int run_host_agent();

}  // namespace convoy::launcher

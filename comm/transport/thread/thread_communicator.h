// Communicators between threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/core/communicator.h"

namespace convoy::dist {

/// Returns one communicator per rank, in rank order. Each must be used and destroyed by its own thread.
/// Throws UsageError if `ranks` is less than 1.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks,
                                                                     const CommOptions& options = {});

/// Returns the calling rank's communicator. Collective call. Throws UsageError unless `rendezvous` is from
/// rendezvous_in_threads().
std::unique_ptr<Communicator> make_thread_communicator(Rendezvous& rendezvous,
                                                       const CommOptions& options = {});

}  // namespace convoy::dist

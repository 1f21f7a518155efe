// Ranks that are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/rendezvous.h"

namespace convoy {

/// One communicator a rank, by rank; each is used, and destroyed, by its own thread.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks,
                                                                     const CommOptions& options = {});

/// The calling thread's, of those that met by meet_in_threads(). Every rank calls it. UsageError where the
/// ranks met otherwise.
std::unique_ptr<Communicator> make_thread_communicator(Rendezvous& rendezvous,
                                                       const CommOptions& options = {});

}  // namespace convoy

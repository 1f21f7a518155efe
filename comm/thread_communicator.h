// Ranks that are threads of one process: for tests, and for teaching without mpirun.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace convoy {

/// One communicator a rank, by rank; each is used, and destroyed, by its own thread.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks,
                                                                     const CommOptions& options = {});

}  // namespace convoy

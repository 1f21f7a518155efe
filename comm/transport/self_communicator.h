// A communicator of one rank.
#pragma once

#include <memory>

#include "convoy/comm/core/communicator.h"

namespace convoy::dist {

/// Returns a communicator of one rank, whose collectives copy data at most. Like the others it has a stream
/// with its own thread, so programs take the same code path with any number of ranks. Thread-safe.
std::unique_ptr<Communicator> make_self_communicator(const CommOptions& options = {});

}  // namespace convoy::dist

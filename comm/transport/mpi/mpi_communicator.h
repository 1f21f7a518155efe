// Communicators on the CPU that exchange data through MPI.
#pragma once

#include <memory>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/core/message_links.h"

namespace convoy::dist {

/// Returns a communicator of all ranks that exchanges data through MPI messages. Collective call. Throws
/// UsageError if the ranks were not initialized through MPI, or if the build has no MPI.
std::unique_ptr<Communicator> make_mpi_communicator(Rendezvous& rendezvous, const CommOptions& options = {});

/// Returns only the message links between all ranks. Collective call. Throws the same errors.
std::unique_ptr<MessageLinks> make_mpi_links(Rendezvous& rendezvous);

}  // namespace convoy::dist

// Ranks of the CPU that exchange data through MPI.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/message_links.h"
#include "comm/rendezvous.h"

namespace convoy {

/// Every rank calls it. UsageError where the ranks did not meet through MPI, or the build has none.
std::unique_ptr<Communicator> make_mpi_communicator(Rendezvous& rendezvous, const CommOptions& options = {});

/// The links alone, of all ranks. The same errors.
std::unique_ptr<MessageLinks> make_mpi_links(Rendezvous& rendezvous);

}  // namespace convoy

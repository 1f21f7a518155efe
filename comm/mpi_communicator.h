// Ranks of the CPU that exchange data through MPI.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/rendezvous.h"

namespace convoy {

/// Every rank calls it. UsageError where the ranks did not meet through MPI, or the build has none.
std::unique_ptr<Communicator> make_mpi_communicator(Rendezvous& rendezvous, const CommOptions& options = {});

}  // namespace convoy

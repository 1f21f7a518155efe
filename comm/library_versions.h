// What carries data between ranks: ranks talk to each other through the same version of it.
#pragma once

#include <string>

namespace convoy {

/// "Open MPI v4.1.4"; "" in a build without.
std::string mpi_version_text();

/// "NCCL 2.28.3"; "" in a build without.
std::string nccl_version_text();

}  // namespace convoy

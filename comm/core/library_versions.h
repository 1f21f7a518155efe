// Versions of the communication libraries. All ranks should use the same ones.
#pragma once

#include <string>

namespace convoy::dist {

/// Returns, for example, "Open MPI v4.1.4"; an empty string in a build without MPI.
std::string mpi_version_text();

/// Returns, for example, "NCCL 2.28.3"; an empty string in a build without NCCL.
std::string nccl_version_text();

}  // namespace convoy::dist

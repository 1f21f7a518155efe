// The environment in which tests start Open MPI.
#pragma once

#include <map>
#include <string>

#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {

/// Returns the environment for mpirun and its ranks: it may run as root and with more ranks than cores.
/// `session` must be a directory that no other mpirun uses: each one removes the session directory that they
/// would share, while another may start to use it.
inline std::map<std::string, std::string> mpirun_environment(const TempDirectory& session) {
  return {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
          {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
          {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
          {"OMPI_MCA_hwloc_base_binding_policy", "none"},
          {"TMPDIR", session.path().string()},
          {"ASAN_OPTIONS", "detect_leaks=0"}};  // Open MPI leaks thousands of blocks
}

}  // namespace convoy::testing

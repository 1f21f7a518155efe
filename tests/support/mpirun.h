// How tests start Open MPI.
#pragma once

#include <map>
#include <string>

#include "tests/support/temp_folder.h"

namespace convoy::testing {

/// For mpirun and what it starts: as root, with more ranks than cores. session: where it keeps its files,
/// which is not where another mpirun does: each removes the folder they would share while the other begins to
/// use it.
inline std::map<std::string, std::string> mpirun_environment(const TempFolder& session) {
  return {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
          {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
          {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
          {"OMPI_MCA_hwloc_base_binding_policy", "none"},
          {"TMPDIR", session.path().string()},
          {"ASAN_OPTIONS", "detect_leaks=0"}};  // MPI's own, thousands
}

}  // namespace convoy::testing

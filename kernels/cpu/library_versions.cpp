// The versions of oneDNN and OpenBLAS, and the processors of the kernels, as text.
#include "convoy/kernels/runtime/library_versions.h"

#include <cblas.h>

#include "convoy/kernels/cpu/onednn/versions.h"

namespace convoy {

std::string onednn_version_text() {
  const dnnl_version_t& version = *dnnl_version();
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

std::string openblas_version_text() {
  const std::string text = openblas_get_config();  // "OpenBLAS 0.3.21 DYNAMIC_ARCH …"
  return text.substr(0, text.find(' ', text.find(' ') + 1));
}

// Defined by CMake, for each library that has this file.
std::string cpu_level() { return CONVOY_CPU_LEVEL; }

}  // namespace convoy

// The version of cuBLASLt as text. cudnn/check.cpp has the version of cuDNN.
#include "convoy/kernels/runtime/library_versions.h"

#include <cublasLt.h>

namespace convoy {

std::string cublaslt_version_text() {
  const std::size_t version = cublasLtGetVersion();  // 10000 major + 100 minor + patch
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace convoy

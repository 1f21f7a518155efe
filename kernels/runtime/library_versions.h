// Names and versions of the code that computes.
#pragma once

#include <string>

namespace convoy {

/// Returns the version that the loaded library reports: "cuDNN 9.19.0". Returns "" if this build has no
/// cuDNN.
std::string cudnn_version_text();

/// Returns the version of cuBLASLt: "cuBLASLt 13.1.0".
std::string cublaslt_version_text();

/// Return the versions of the CPU libraries: "oneDNN 2.6.3", "OpenBLAS 0.3.21".
std::string onednn_version_text();
std::string openblas_version_text();

/// Returns the processors for which the CPU kernels of this process are compiled: "native" (that of the build
/// machine), or a level of the x86-64 ABI such as "x86-64-v3" (processors with AVX2), or another
/// architecture.
std::string cpu_level();

}  // namespace convoy

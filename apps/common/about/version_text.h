// The text of --version.
#pragma once

#include <string>

namespace convoy {

/// Returns the version, and lines with the build type and compiler, the devices and the libraries:
///
///   convoy-train 0.1.0
///   build      Release, GNU 12.2.0, CPU only, CPU kernels: native
///   devices    CPU with 2 cores; no GPU: this build has no CUDA; use the CPU, or configure with the cuda preset
///   libraries  oneDNN 2.6.3, OpenBLAS 0.3.21, libjpeg-turbo 2.1.5, fmt 9.1.0, Open MPI v4.1.4
std::string version_text(const std::string& program);

}  // namespace convoy

// The GPUs for which the kernels of this build were compiled.
#pragma once

#include <string>

namespace convoy {

/// Returns the architectures of the build's code as CMAKE_CUDA_ARCHITECTURES has them: "80-real,90".
std::string compiled_architectures();

/// Returns the architecture of the code that a GPU runs: 90 is sm_90. Code that its driver has compiled from PTX has the
/// architecture of the PTX, and lacks what later ones brought. Throws DeviceError if the build has no code for the GPU.
int architecture_of_code(int device);

}  // namespace convoy

#include "convoy/kernels/runtime/cuda/compiled_code.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/runtime/cuda/check.h"

namespace convoy {
namespace {

/// Is compiled as all others are, and never launched.
__global__ void compiled_kernel() {}

}  // namespace

std::string compiled_architectures() { return CONVOY_CUDA_ARCHITECTURES; }

int architecture_of_code(int device) {
  CUDA_CHECK(cudaSetDevice(device));
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, compiled_kernel);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorUnsupportedPtxVersion) {
    cudaGetLastError();  // clears the error, which is reported here
    int major = 0, minor = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    throw DeviceError("cuda:" + std::to_string(device) + ": found compute capability " +
                      std::to_string(major) + "." + std::to_string(minor) +
                      ", expected one for which this build has code, " + compiled_architectures() + " (" +
                      cudaGetErrorName(status) + ")");
  }
  CUDA_CHECK(status);
  return std::min(attributes.binaryVersion, attributes.ptxVersion);
}

}  // namespace convoy

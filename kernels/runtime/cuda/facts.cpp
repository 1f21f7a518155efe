#include "convoy/kernels/runtime/cuda/facts.h"

#include <cuda_runtime_api.h>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/cuda/check.h"
#include "convoy/kernels/runtime/cuda/device.h"
#include "convoy/kernels/runtime/library_versions.h"

namespace convoy {

CudaFacts cuda_facts() {
  CudaFacts facts{.is_built_in = true, .needs = cuda_version_text(CUDART_VERSION)};
  int driver_version = 0;
  if (cudaDriverGetVersion(&driver_version) == cudaSuccess && driver_version > 0)
    facts.supports = cuda_version_text(driver_version);
  for (std::string& text : std::vector{cudnn_version_text(), cublaslt_version_text()})
    if (!text.empty()) facts.libraries.push_back(std::move(text));
  const CudaAvailability available = cuda_availability();
  facts.reason = available.reason;
  for (int index = 0; index < available.count; ++index) {
    cudaDeviceProp properties{};
    CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    facts.gpus.push_back({.name = properties.name,
                          .uuid = cuda_uuid_text(properties.uuid.bytes),
                          .compute_capability = 10 * properties.major + properties.minor,
                          .bytes = properties.totalGlobalMem});
  }
  return facts;
}

}  // namespace convoy

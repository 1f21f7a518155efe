#include "convoy/kernels/cuda/primitives/launch.h"

#include <cstdlib>
#include <string_view>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/cuda/compiled_code.h"

namespace convoy::kernels {

LaunchLimits::LaunchLimits(CudaStream& stream) : stream_(stream) {
  const char* const setting = std::getenv("CONVOY_CLUSTERS");
  const std::string_view wanted = setting == nullptr ? "16" : setting;
  check(wanted == "0" || wanted == "8" || wanted == "16", "CONVOY_CLUSTERS: found '{}', expected 0, 8 or 16",
        wanted);
  // A GPU of sm_90 that runs the PTX of older ones has kernels that do not wait (early_start.h), and no clusters.
  starts_early = architecture_of_code(stream.device()) >= 90;
  int has_clusters = 0, bytes = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&has_clusters, cudaDevAttrClusterLaunch, stream.device()));
  CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, stream.device()));
  shared_bytes = static_cast<std::size_t>(bytes);
  if (wanted != "0" && has_clusters != 0 && starts_early)
    cluster_blocks = wanted == "8" || stream.cuda_options().deterministic ? kPortableBlocks : 16;
}

int LaunchLimits::resident_clusters(const void* kernel, unsigned blocks, unsigned threads,
                                    std::size_t bytes) {
  const auto [known, is_new] = resident_.try_emplace({kernel, blocks, bytes}, 0);
  if (!is_new) return known->second;
  stream_.make_current();
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared_bytes)));
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  cudaLaunchAttribute attribute = cluster_attribute(blocks);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1, blocks);
  config.blockDim = threads;
  config.dynamicSmemBytes = bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const cudaError_t status = cudaOccupancyMaxActiveClusters(&known->second, kernel, &config);
  if (status == cudaErrorInvalidClusterSize) cudaGetLastError();  // none: clears the error
  if (status != cudaErrorInvalidClusterSize) CUDA_CHECK(status);
  return known->second;
}

}  // namespace convoy::kernels

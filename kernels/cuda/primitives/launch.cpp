#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels {
namespace {

struct EarlyStarts {
  explicit EarlyStarts(const CudaStream& stream) {
    int major = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream.device()));
    are_supported = major >= 9;
  }
  bool are_supported = false;
};

}  // namespace

bool starts_kernels_early(CudaStream& stream) { return stream.local<EarlyStarts>().are_supported; }

}  // namespace convoy::kernels

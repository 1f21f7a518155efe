#include "convoy/kernels/cuda/primitives/launch.h"

#include "convoy/kernels/runtime/cuda/compiled_code.h"

namespace convoy::kernels {
namespace {

/// A GPU of sm_90 that runs the PTX of older ones has kernels that do not wait (early_start.h).
struct EarlyStarts {
  explicit EarlyStarts(const CudaStream& stream)
      : are_supported(architecture_of_code(stream.device()) >= 90) {}
  bool are_supported;
};

}  // namespace

bool starts_kernels_early(CudaStream& stream) { return stream.local<EarlyStarts>().are_supported; }

}  // namespace convoy::kernels

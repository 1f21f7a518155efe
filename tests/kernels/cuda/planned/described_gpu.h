// GPUs that exist only as descriptions. Since version 9.8, cuDNN can make heuristics, engines and plans for
// them.
#pragma once

#include <span>
#include <string>

#include "convoy/kernels/cuda/cudnn/plan.h"

namespace convoy::testing {

/// The properties of a GPU that cuDNN asks for and that differ between GPUs. Limits of multiprocessors are
/// those of the table "Technical Specifications per Compute Capability" in the CUDA C++ Programming Guide;
/// the rest is from NVIDIA's data sheet of the GPU (of the SXM board, where there are several).
struct GpuDescription {
  std::string_view name;
  int compute_capability;  // 100 * major + 10 * minor
  int multiprocessors;
  int max_threads_per_multiprocessor, max_blocks_per_multiprocessor;
  int max_shared_bytes_per_block;  // if the kernel opts in
  std::int64_t l2_bytes, memory_bytes;
  int clock_khz;         // the highest
  int memory_clock_khz;  // follows from the bandwidth: two transfers per clock and wire
};

/// Returns the described GPUs: A100, L40S, H100, H200 and B200.
std::span<const GpuDescription> gpu_descriptions();
/// Returns one of them by its name, which must exist.
const GpuDescription& gpu_description(std::string_view name);

/// A described GPU as the target of plans.
class DescribedGpu final : public kernels::CudnnTarget {
 public:
  explicit DescribedGpu(const GpuDescription& gpu);
  void configure(kernels::CudnnDescriptor& descriptor) const override;

 private:
  kernels::CudnnDescriptor properties_{CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR};
};

}  // namespace convoy::testing

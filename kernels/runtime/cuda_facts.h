// What there is to know of a machine's GPUs and their software, for who looks for what is wrong with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convoy {

struct GpuFacts {
  std::string name, uuid;      // "NVIDIA H200", "GPU-1f3a…"
  int compute_capability = 0;  // 90 is 9.0
  std::uint64_t bytes = 0;     // of memory, in all
};

struct CudaFacts {
  bool is_built_in = false;     // false: a build for the CPU alone, and nothing below is known
  std::string needs, supports;  // CUDA versions: of this build's runtime, and the driver's newest; "" without
  std::string reason;           // where no GPU can be used: why
  std::vector<std::string> libraries;  // "cuDNN 9.19.0"
  std::vector<GpuFacts> gpus;          // that this process may use, by index
};

/// Asks the driver, and makes no context on any GPU.
CudaFacts cuda_facts();

}  // namespace convoy

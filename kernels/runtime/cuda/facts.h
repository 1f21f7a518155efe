// A description of the GPUs of this machine and their software, for diagnostics.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convoy {

/// A description of one GPU.
struct GpuFacts {
  std::string name, uuid;      // "NVIDIA H200", "GPU-1f3a…"
  int compute_capability = 0;  // 90 means 9.0
  std::uint64_t bytes = 0;     // total memory
};

/// A description of the CUDA software and of the GPUs that this process can use.
struct CudaFacts {
  bool is_built_in = false;  // false for a CPU-only build, which knows only `reason`
  // The CUDA version of this build's runtime, and the newest one that the driver supports ("" without a
  // driver).
  std::string needs, supports;
  std::string code;                    // the architectures of the kernels' code: "80-real,90"
  std::string reason;                  // why no GPU can be used; "" if one can
  std::vector<std::string> libraries;  // names and versions: "cuDNN 9.19.0"
  std::vector<GpuFacts> gpus;          // the GPUs that this process can use, by index
};

/// Queries the driver and the libraries. Does not create a context on any GPU.
CudaFacts cuda_facts();

}  // namespace convoy

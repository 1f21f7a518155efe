// The CUDA side of Device, for its own source and tests.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <string>

#include "kernels/runtime/device.h"
#include "kernels/runtime/memory.h"

namespace convoy {

/// Blocks of a GPU's memory (cudaMalloc: aligned to 256 bytes).
std::unique_ptr<MemorySource> cuda_memory(int device);

/// Blocks of host memory that the system may not move (cudaHostAlloc), so that a GPU copies to and from them
/// by itself, while the host goes on.
std::unique_ptr<MemorySource> cuda_pinned_memory(int device);

/// Why a driver's two answers mean that no GPU can be used: its CUDA version as cudaDriverGetVersion codes it
/// (12040 is 12.4; 0: no driver), and what cudaGetDeviceCount returned.
std::string explain_no_gpu(int driver_version, cudaError_t status);

/// Of 12040: "12.4".
std::string cuda_version_text(int coded);

/// "GPU-1f3a…", of the 16 bytes by which a driver tells GPUs apart.
std::string cuda_uuid_text(std::span<const char, 16> bytes);

}  // namespace convoy

// The CUDA implementation of Device: declarations for its sources and tests.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "convoy/kernels/runtime/device_context.h"
#include "convoy/kernels/runtime/memory/memory.h"

namespace convoy {

/// Returns a source of GPU memory (cudaMalloc). Blocks are aligned to 256 bytes.
std::unique_ptr<MemorySource> cuda_memory(int device);

/// Returns a source of pinned host memory (cudaHostAlloc). A GPU copies to and from pinned memory
/// asynchronously, while the host continues.
std::unique_ptr<MemorySource> cuda_pinned_memory(int device);

/// Returns the reason why no GPU can be used. driver_version: the CUDA version of the driver as encoded by
/// cudaDriverGetVersion (12040 is 12.4; 0 means no driver). status: the result of cudaGetDeviceCount.
std::string explain_no_gpu(int driver_version, cudaError_t status);

/// Returns the text of an encoded CUDA version: "12.4" for 12040.
std::string cuda_version_text(int coded);

/// Returns the text of a GPU's UUID: "GPU-1f3a…". For a slice of a GPU (Multi-Instance GPU) returns the address
/// of the whole GPU, "MIG-0000:1b:00": NCCL does not connect ranks on slices of one GPU.
std::string cuda_uuid_text(const cudaDeviceProp& properties);

}  // namespace convoy

// kernels/progress_note.h on the GPU, and kernels/runtime/cuda/compiled_code.h, which asks about any one kernel.
#include "convoy/kernels/progress_note.h"

#include <algorithm>
#include <string>

#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/runtime/cuda/compiled_code.h"

namespace convoy::kernels {
namespace {

// Writes the note before the count, but readers do not rely on this order: a reader waits until neither
// changes.
__global__ void progress_note_kernel(std::uint64_t* count, ProgressNote* note,
                                     ProgressNote::Content content) {
  note->content = content;
  note->count = ++*count;
}

}  // namespace

void note_progress(CudaStream& stream, int counter, ProgressNote* note,
                   const ProgressNote::Content& content) {
  launch(stream, 1, 1, 0, progress_note_kernel, stream.progress_counts() + counter, note, content);
}

}  // namespace convoy::kernels

namespace convoy {

std::string compiled_architectures() { return CONVOY_CUDA_ARCHITECTURES; }

int architecture_of_code(int device) {
  CUDA_CHECK(cudaSetDevice(device));
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, kernels::progress_note_kernel);
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

#include "kernels/runtime/cuda_stream.h"

#include "kernels/runtime/cuda_check.h"

namespace convoy {

// Without timing an event is cheaper, and waiting for one does not make the GPU write a time stamp.
CudaEvent::CudaEvent(int device) {
  CUDA_CHECK(cudaSetDevice(device));
  CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
}

CudaEvent::~CudaEvent() { cudaEventDestroy(event_); }

bool CudaEvent::reached() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  CUDA_CHECK(status);
  return true;
}

void CudaEvent::wait() const { CUDA_CHECK(cudaEventSynchronize(event_)); }

CudaStream::CudaStream(int device, CachingAllocator& memory) : device_(device), memory_(memory) {
  make_current();
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0));
}

CudaStream::~CudaStream() { cudaStreamDestroy(stream_); }

void CudaStream::make_current() const { CUDA_CHECK(cudaSetDevice(device_)); }

void CudaStream::record(CudaEvent& event) { CUDA_CHECK(cudaEventRecord(event.event_, stream_)); }

void CudaStream::wait(const CudaEvent& event) { CUDA_CHECK(cudaStreamWaitEvent(stream_, event.event_, 0)); }

void CudaStream::synchronize() { CUDA_CHECK(cudaStreamSynchronize(stream_)); }

}  // namespace convoy

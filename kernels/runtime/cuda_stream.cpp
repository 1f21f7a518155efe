#include "kernels/runtime/cuda_stream.h"

#include "kernels/runtime/cuda_check.h"

namespace convoy {
namespace {

// Before every call, whatever it takes: a host thread that has chosen no GPU would make a context on GPU 0.
void make_current_gpu(int device) { CUDA_CHECK(cudaSetDevice(device)); }

int runtime_priority(StreamPriority priority) {
  int least = 0, greatest = 0;  // the greatest is the smallest number
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  return priority == StreamPriority::high ? greatest : least;
}

}  // namespace

// Without timing an event is cheaper, and waiting for one does not make the GPU write a time stamp.
CudaEvent::CudaEvent(int device, EventTiming timing) : device_(device) {
  make_current_gpu(device);
  CUDA_CHECK(cudaEventCreateWithFlags(&event_,
                                      timing == EventTiming::on ? cudaEventDefault : cudaEventDisableTiming));
}

CudaEvent::~CudaEvent() {
  cudaSetDevice(device_);
  cudaEventDestroy(event_);
}

bool CudaEvent::reached() const {
  make_current_gpu(device_);
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  CUDA_CHECK(status);
  return true;
}

void CudaEvent::wait() const {
  make_current_gpu(device_);
  CUDA_CHECK(cudaEventSynchronize(event_));
}

double elapsed_ms(const CudaEvent& begin, const CudaEvent& end) {
  begin.wait();
  end.wait();
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.event_, end.event_));
  return milliseconds;
}

CudaStream::CudaStream(int device, CachingAllocator& memory, const CudaStreamOptions& options)
    : device_(device),
      memory_(memory),
      options_(options.cuda),
      choices_(options.choices != nullptr ? options.choices : &own_choices_),
      may_time_(!options.cuda.deterministic) {
  make_current();
  CUDA_CHECK(
      cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, runtime_priority(options.priority)));
}

CudaStream::~CudaStream() {
  cudaSetDevice(device_);
  locals_.clear();
  cudaStreamDestroy(stream_);
}

void CudaStream::make_current() const { make_current_gpu(device_); }

bool CudaStream::is_capturing() const {
  make_current();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(stream_, &status));
  return status != cudaStreamCaptureStatusNone;
}

void CudaStream::record(CudaEvent& event) {
  make_current();
  CUDA_CHECK(cudaEventRecord(event.event_, stream_));
}

void CudaStream::record_in_replays(CudaEvent& event) {
  if (!is_capturing()) return record(event);  // the flag is for recordings alone
  CUDA_CHECK(cudaEventRecordWithFlags(event.event_, stream_, cudaEventRecordExternal));
}

void CudaStream::wait(const CudaEvent& event) {
  make_current();
  CUDA_CHECK(cudaStreamWaitEvent(stream_, event.event_, 0));
}

void CudaStream::synchronize() {
  make_current();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream_,
                        &status);  // if that fails, so does the next call, whose text is better known
  if (status != cudaStreamCaptureStatusNone) throw CaptureError("a host wait inside recorded work");
  CUDA_CHECK(cudaStreamSynchronize(stream_));
}

}  // namespace convoy

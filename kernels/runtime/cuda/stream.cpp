#include "convoy/kernels/runtime/cuda/stream.h"

#include <algorithm>
#include <cstdlib>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/cuda/check.h"

namespace convoy {
namespace {

// Makes the GPU current. Every member function does so before its first CUDA call, because a host thread
// without a current GPU would create a context on GPU 0.
void make_current_gpu(int device) { CUDA_CHECK(cudaSetDevice(device)); }

int runtime_priority(StreamPriority priority) {
  int lowest = 0, highest = 0;  // the highest priority is the smallest number
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  switch (priority) {
    case StreamPriority::low: return lowest;
    case StreamPriority::normal: return std::max(lowest - 1, highest);
    case StreamPriority::high: return highest;
  }
  return lowest;
}

}  // namespace

// Events without timing are cheaper, because the GPU does not write a time stamp.
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
      algorithms_(options.algorithms != nullptr ? options.algorithms : &own_algorithms_),
      autotune_(!options.cuda.deterministic),
      neighbour_(options.side_of),
      is_side_(options.side_of != nullptr) {
  // LaunchLimits reads it later; a wrong value ends a program here, before it has read its data.
  const char* const setting = std::getenv("CONVOY_CLUSTERS");
  const std::string clusters = setting == nullptr ? "0" : setting;
  check(clusters == "0" || clusters == "8" || clusters == "16",
        "CONVOY_CLUSTERS: found '{}', expected 0, 8 or 16", clusters);
  make_current();
  if (!options_.deterministic)
    CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device));
  constexpr std::size_t kBytes = kTickets * sizeof(unsigned) + 2 * sizeof(std::uint64_t);
  void* tickets = nullptr;
  CUDA_CHECK(cudaMalloc(&tickets, kBytes));
  tickets_.reset(static_cast<unsigned*>(tickets));
  CUDA_CHECK(
      cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, runtime_priority(options.priority)));
  CUDA_CHECK(cudaMemsetAsync(tickets, 0, kBytes, stream_));
  if (is_side_) neighbour_->neighbour_ = this;
}

CudaStream::~CudaStream() {
  cudaSetDevice(device_);
  if (is_side_) neighbour_->neighbour_ = nullptr;
  locals_.clear();
  cudaStreamDestroy(stream_);
}

void CudaStream::release(void* block, std::size_t bytes) noexcept {
  if (is_side_ && block != nullptr)
    released_.emplace_back(block, bytes);
  else
    memory_.release(block, bytes);
}

std::shared_ptr<void> CudaStream::take_released() {
  struct Blocks {
    CachingAllocator& memory;
    std::vector<std::pair<void*, std::size_t>> blocks;
    ~Blocks() {
      for (const auto& [block, bytes] : blocks) memory.release(block, bytes);
    }
  };
  auto held = std::make_shared<Blocks>(memory_);
  held->blocks.swap(released_);
  return held;
}

void CudaStream::wait_for_neighbour() {
  if (neighbour_ != nullptr) neighbour_->synchronize();
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
  if (!is_capturing()) return record(event);  // the flag is valid only during a capture
  CUDA_CHECK(cudaEventRecordWithFlags(event.event_, stream_, cudaEventRecordExternal));
}

void CudaStream::wait(const CudaEvent& event) {
  make_current();
  CUDA_CHECK(cudaStreamWaitEvent(stream_, event.event_, 0));
  has_waited_ = true;
}

void CudaStream::synchronize() {
  make_current();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  // An error here is ignored, because the next call fails with a more familiar message.
  cudaStreamIsCapturing(stream_, &status);
  if (status != cudaStreamCaptureStatusNone)
    throw CaptureError("cannot capture a synchronization of the host with the stream");
  CUDA_CHECK(cudaStreamSynchronize(stream_));
}

}  // namespace convoy

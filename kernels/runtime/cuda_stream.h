// Ordered work on a GPU, and points in it. Owners of what the CUDA runtime calls a stream and an event.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/runtime/memory.h"

namespace convoy {

enum class EventTiming : bool { off, on };

/// A point in a CUDA stream's work. Starts as reached; CudaStream::record makes it pending until the GPU gets
/// there.
class CudaEvent {
 public:
  /// Of the streams of one GPU.
  explicit CudaEvent(int device, EventTiming timing = EventTiming::off);
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool reached() const;
  void wait() const;  // blocks the calling thread

  /// Between two recorded events with timing, of one GPU. Waits for both.
  friend double elapsed_ms(const CudaEvent& begin, const CudaEvent& end);

 private:
  friend class CudaStream;
  int device_;
  cudaEvent_t event_ = nullptr;
};

double elapsed_ms(const CudaEvent& begin, const CudaEvent& end);

/// Blocks of a high stream's kernels start before those that other streams have waiting. For communication,
/// which computation waits for; a few blocks, which take little from it.
enum class StreamPriority : bool { normal, high };

/// A stream of its own on one GPU, not ordered with the legacy default stream. Memory is stream-ordered: a
/// block given back to the stream's allocator may be handed out at once, for work that runs later on the same
/// stream.
class CudaStream {
 public:
  /// `memory`, of that GPU, gives kernels their scratch space and outlives the stream.
  CudaStream(int device, CachingAllocator& memory, StreamPriority priority = StreamPriority::normal);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  int device() const { return device_; }
  cudaStream_t handle() const { return stream_; }
  CachingAllocator& memory() const { return memory_; }
  /// The runtime launches and allocates on the calling thread's current device: before either, this stream's.
  void make_current() const;

  void record(CudaEvent& event);
  /// Work submitted later starts after the event. Never blocks the host.
  void wait(const CudaEvent& event);
  void synchronize();

 private:
  int device_;
  CachingAllocator& memory_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace convoy

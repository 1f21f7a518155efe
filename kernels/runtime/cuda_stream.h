// Ordered work on a GPU, and points in it. Owners of what the CUDA runtime calls a stream and an event.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <typeindex>
#include <unordered_map>

#include "kernels/runtime/cuda_options.h"
#include "kernels/runtime/memory.h"
#include "kernels/runtime/timed_choices.h"

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

struct CudaStreamOptions {
  StreamPriority priority = StreamPriority::normal;
  CudaOptions cuda = {};
  TimedChoices* choices = nullptr;  // outlives the stream; null: a table of its own
};

/// A stream of its own on one GPU, not ordered with the legacy default stream. Memory is stream-ordered: a
/// block given back to the stream's allocator may be handed out at once, for work that runs later on the same
/// stream.
class CudaStream {
 public:
  /// `memory`, of that GPU, gives kernels their scratch space and outlives the stream.
  CudaStream(int device, CachingAllocator& memory, const CudaStreamOptions& options = {});
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  int device() const { return device_; }
  cudaStream_t handle() const { return stream_; }
  CachingAllocator& memory() const { return memory_; }
  const CudaOptions& cuda_options() const { return options_; }

  /// What libraries' algorithms were timed and chosen.
  TimedChoices& choices() { return *choices_; }
  /// May whoever has alternatives now time them, which takes a while and waits for the GPU? Off, what has not
  /// been timed is computed by the library's first guess. Never on with CudaOptions::deterministic, nor while
  /// capturing.
  bool may_time() const { return may_time_ && !is_capturing(); }
  void set_may_time(bool may) { may_time_ = may && !options_.deterministic; }

  /// Per-stream state of a library (cuDNN and cuBLAS handles, finished plans, …), made on first use. T's
  /// constructor may take the stream.
  template <class T>
  T& local() {
    std::shared_ptr<void>& slot = locals_[std::type_index(typeid(T))];
    if (!slot) slot = std::make_shared<T>(*this);
    return *static_cast<T*>(slot.get());
  }
  /// The runtime launches and allocates on the calling thread's current device: before either, this stream's.
  void make_current() const;

  /// Whether work is being recorded for replay (kernels/runtime/work_graph.h), and so does not run.
  bool is_capturing() const;

  /// While capturing, a point in the recording alone: for other streams to wait for, not for the host.
  void record(CudaEvent& event);
  /// While capturing, a piece of the recorded work: each replay records the event anew, for the host.
  void record_in_replays(CudaEvent& event);
  /// Work submitted later starts after the event. Never blocks the host.
  void wait(const CudaEvent& event);
  void synchronize();

 private:
  int device_;
  CachingAllocator& memory_;
  CudaOptions options_;
  TimedChoices own_choices_;
  TimedChoices* choices_;
  bool may_time_;
  cudaStream_t stream_ = nullptr;
  std::unordered_map<std::type_index, std::shared_ptr<void>> locals_;  // goes before the stream
};

}  // namespace convoy

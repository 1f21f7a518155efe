// CUDA streams and events as owning classes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <typeindex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convoy/kernels/runtime/algorithm_cache.h"
#include "convoy/kernels/runtime/cuda_options.h"
#include "convoy/kernels/runtime/memory/memory.h"

namespace convoy {

/// A deleter for std::unique_ptr that calls kDestroy.
template <auto kDestroy>
struct Destroyer {
  template <class T>
  void operator()(T* object) const {
    kDestroy(object);
  }
};
/// An owning pointer to an object of CUDA or one of its libraries.
template <class Pointer, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroyer<kDestroy>>;

enum class EventTiming : bool { off, on };

/// A point in the work of a CUDA stream. A new event counts as reached. CudaStream::record makes it pending
/// until the GPU has completed the stream's previous work.
class CudaEvent {
 public:
  /// Creates an event for the streams of GPU `device`.
  explicit CudaEvent(int device, EventTiming timing = EventTiming::off);
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  /// Returns whether the GPU has reached the event. Does not block.
  bool reached() const;
  /// Blocks the calling thread until the event is reached.
  void wait() const;

  friend double elapsed_ms(const CudaEvent& begin, const CudaEvent& end);

 private:
  friend class CudaStream;
  int device_;
  cudaEvent_t event_ = nullptr;
};

/// Returns the milliseconds between two recorded events with timing, of one GPU. Blocks until both are
/// reached.
double elapsed_ms(const CudaEvent& begin, const CudaEvent& end);

/// The scheduling priority of a stream. Pending thread blocks of a stream of higher priority start before
/// those of other streams. High priority is meant for communication: computation waits for it, and its
/// kernels have few blocks. Low priority is meant for work whose results are needed later.
enum class StreamPriority : std::uint8_t { low, normal, high };

class CudaStream;

struct CudaStreamOptions {
  StreamPriority priority = StreamPriority::normal;
  CudaOptions cuda = {};
  AlgorithmCache* algorithms = nullptr;  // must outlive the stream; null: the stream owns a cache
  /// Makes this stream a side stream (SideStream) of another one, with which it shares the GPU and the
  /// memory. That one must outlive it.
  CudaStream* side_of = nullptr;
};

/// A CUDA stream on one GPU, which does not synchronize with the legacy default stream. Memory is
/// stream-ordered: a block released to the stream's allocator may be allocated again at once, for later work
/// on the same stream. Not thread-safe.
class CudaStream {
 public:
  /// Creates a stream on GPU `device`. `memory` provides scratch space for kernels in that GPU's memory, and
  /// must outlive the stream.
  CudaStream(int device, CachingAllocator& memory, const CudaStreamOptions& options = {});
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  int device() const { return device_; }
  cudaStream_t handle() const { return stream_; }
  CachingAllocator& memory() const { return memory_; }
  const CudaOptions& cuda_options() const { return options_; }
  /// Returns the number of multiprocessors among which kernels divide long sums: that of the GPU, or with
  /// CudaOptions::deterministic always the same one, so that sums round alike on all GPUs.
  int multiprocessors() const { return multiprocessors_; }

  /// Returns the results of autotuning on this stream.
  AlgorithmCache& algorithm_cache() { return *algorithms_; }
  /// Returns whether kernels may time alternative algorithms now, which takes a while and waits for the GPU.
  /// Without autotuning, a problem that is not in the cache uses the first algorithm that the library
  /// suggests. Always false with CudaOptions::deterministic and during a capture.
  bool autotune() const { return autotune_ && !is_capturing(); }
  /// Returns what set_autotune() set, also during a capture.
  bool autotune_is_enabled() const { return autotune_; }
  /// Enables or disables autotuning. Has no effect with CudaOptions::deterministic.
  void set_autotune(bool enabled) { autotune_ = enabled && !options_.deterministic; }

  /// Adds a warning of a kernel, one line for the user.
  void warn(std::string text) { warnings_.push_back(std::move(text)); }
  /// Returns and clears the warnings.
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

  /// Returns scratch memory of this stream to the allocator, at once. A side stream collects it for
  /// take_released(): the allocator could give it to the main stream, which does not wait for the kernels
  /// that use it.
  void release(void* block, std::size_t bytes) noexcept;
  /// Returns an owner of all memory that this side stream has collected. It returns the memory to the
  /// allocator.
  std::shared_ptr<void> take_released();
  /// Blocks until the side stream of this stream, or the stream whose side stream this is, is idle. Then work
  /// on this stream can be timed.
  void wait_for_neighbour();
  /// Returns whether the stream has waited for an event since the last call. A kernel after an event must not
  /// start early.
  bool take_event_wait() { return std::exchange(has_waited_, false); }

  /// Returns the per-stream state of type T, such as library handles and execution plans. Creates it on first
  /// use as T(*this).
  template <class T>
  T& local() {
    std::shared_ptr<void>& slot = locals_[std::type_index(typeid(T))];
    if (!slot) slot = std::make_shared<T>(*this);
    return *static_cast<T*>(slot.get());
  }
  /// Returns kTickets counters in device memory, for kernels whose last block combines the results of all
  /// (kernels/cuda/primitives/last_block.h). They are 0 between two kernels of the stream: each kernel sets
  /// them to 0 again. Kernels of one stream run one after another, and other streams have their own tickets.
  /// A graph that is captured from this stream is replayed on it (CudaGraph), so this holds for replays too.
  /// If the graph contains such a kernel of another stream, that stream must wait for the replay before it
  /// runs one outside the graph.
  unsigned* tickets() const { return tickets_.get(); }
  static constexpr int kTickets = 256;
  /// Returns two counters in device memory for note_progress(), which are 0 at first.
  std::uint64_t* progress_counts() const {
    return reinterpret_cast<std::uint64_t*>(tickets_.get() + kTickets);
  }
  /// Makes this stream's GPU the current device of the calling thread. Call it before a launch or an
  /// allocation.
  void make_current() const;

  /// Returns whether the stream is capturing a CUDA graph (kernels/runtime/cuda_graph.h). Captured work does
  /// not run before the graph is replayed.
  bool is_capturing() const;

  /// Records the event after all work submitted so far. During a capture, other streams can wait for the
  /// event, but the host cannot.
  void record(CudaEvent& event);
  /// Like record(). During a capture, however, every replay records the event again, so the host can wait for
  /// it.
  void record_in_replays(CudaEvent& event);
  /// Makes work that is submitted later start after the event. Does not block the host.
  void wait(const CudaEvent& event);
  /// Blocks until all work of the stream is complete. Throws CaptureError during a capture.
  void synchronize();

 private:
  int device_;
  CachingAllocator& memory_;
  CudaOptions options_;
  int multiprocessors_ = 132;  // of an H100 or H200 with SXM
  AlgorithmCache own_algorithms_;
  AlgorithmCache* algorithms_;
  bool autotune_;
  std::vector<std::string> warnings_;
  CudaStream* neighbour_ = nullptr;
  bool is_side_;
  bool has_waited_ = false;
  std::vector<std::pair<void*, std::size_t>> released_;
  Owned<unsigned*, cudaFree> tickets_;
  cudaStream_t stream_ = nullptr;
  std::unordered_map<std::type_index, std::shared_ptr<void>> locals_;  // destroyed before the stream
};

}  // namespace convoy

// Streams: ordered work on a device. A kernel is an overload on the stream's type; `on` picks it at run time.
#pragma once

#include <functional>
#include <memory>
#include <typeindex>
#include <unordered_map>
#include <variant>

namespace convoy {

class CachingAllocator;

/// A point in a CPU stream's work. Starts as reached; CpuStream::record makes it pending until the stream
/// gets there.
class CpuEvent {
 public:
  CpuEvent();
  bool reached() const;
  void wait() const;  // blocks the calling thread

 private:
  friend class CpuStream;
  struct State;
  std::shared_ptr<State> state_;
};

struct CpuStreamOptions {
  int threads = 0;  // cores that a kernel may use; 0: all that this process may run on
  bool own_thread =
      false;  // false: work runs inline, in the caller; true: in order, on a thread of the stream's own
  CachingAllocator* memory = nullptr;  // the device's; null: one of the stream's own
};

/// Ordered work on the CPU. A compute stream runs inline; a communication stream owns a thread and a queue,
/// which is how CPU ranks overlap all-reduce with backward. One thread at a time may use a stream.
class CpuStream {
 public:
  explicit CpuStream(CpuStreamOptions options = {});
  ~CpuStream();  // finishes the queue
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  int threads() const { return threads_; }
  /// Where kernels get their working memory.
  CachingAllocator& memory();

  /// Runs work now (inline), or queues it. An exception from queued work is thrown by the next synchronize().
  void submit(std::function<void()> work);
  void record(CpuEvent& event);
  /// Work submitted later starts after the event. Inline, that means blocking here.
  void wait(const CpuEvent& event);
  void synchronize();

  /// Per-stream state of a library (oneDNN engines and primitives, …), made on first use. T's constructor may
  /// take the stream.
  template <class T>
  T& local() {
    std::shared_ptr<void>& slot = locals_[std::type_index(typeid(T))];
    if (!slot) slot = std::make_shared<T>(*this);
    return *static_cast<T*>(slot.get());
  }

 private:
  struct Worker;
  int threads_;
  CachingAllocator* memory_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> locals_;
  std::unique_ptr<Worker> worker_;  // null for an inline stream
};

class CudaStream;

/// A stream of either device. The one place where a CPU-only build differs.
#if defined(CONVOY_CUDA)
using Stream = std::variant<std::reference_wrapper<CpuStream>, std::reference_wrapper<CudaStream>>;
#else
using Stream = std::variant<std::reference_wrapper<CpuStream>>;
#endif

/// The whole dispatcher: on(stream, [&](auto& s) { relu_forward(s, x, y); }).
template <class F>
decltype(auto) on(const Stream& stream, F&& f) {
  return std::visit([&](auto reference) -> decltype(auto) { return f(reference.get()); }, stream);
}

/// Cores that this process may run on (its affinity mask, not the machine's count).
int available_cores();

}  // namespace convoy

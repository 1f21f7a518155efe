// Streams of ordered work, and the dispatch of kernels. A kernel has one overload per stream type; `on`
// selects it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <typeindex>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace convoy {

class CachingAllocator;
class ThreadPool;

/// A point in the work of a CPU stream. A new event counts as reached. CpuStream::record makes it pending
/// until the stream has completed its previous work. Copies refer to the same event. Thread-safe.
class CpuEvent {
 public:
  /// Makes an event that counts as reached.
  CpuEvent();
  /// Returns whether the stream has reached the event. Does not block.
  bool reached() const;
  /// Blocks the calling thread until the event is reached.
  void wait() const;

 private:
  friend class CpuStream;
  struct State;
  std::shared_ptr<State> state_;
};

/// Options of a CPU stream.
struct CpuStreamOptions {
  /// The number of threads of a kernel; 0 means all cores that this process may use.
  int threads = 0;
  /// If false, submit() runs work inline on the calling thread. If true, a worker thread runs it in order.
  bool own_thread = false;
  /// The allocator for scratch memory of kernels, which must outlive the stream. Null: the stream owns one.
  CachingAllocator* memory = nullptr;
};

/// An ordered sequence of work on the CPU. A compute stream runs its work inline. A communication stream has
/// a worker thread and a queue, so that CPU ranks overlap all-reduce with the backward pass. Not thread-safe.
class CpuStream {
 public:
  /// Creates a stream, and its worker thread if `options` ask for one.
  explicit CpuStream(CpuStreamOptions options = {});
  /// Blocks until all queued work has run.
  ~CpuStream();
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  /// Returns the number of threads of a kernel.
  int threads() const { return threads_; }
  /// Returns the threads, which start at their first parallel loop.
  ThreadPool& pool() const { return *pool_; }
  /// Returns the allocator for scratch memory of kernels.
  CachingAllocator& memory();

  /// Runs `work` inline, or queues it for the worker thread. synchronize() rethrows the first exception of
  /// queued work.
  void submit(std::function<void()> work);
  /// Makes the event pending until all work submitted so far is complete.
  void record(CpuEvent& event);
  /// Makes work that is submitted later start after the event. An inline stream blocks the caller instead.
  void wait(const CpuEvent& event);
  /// Blocks until the queue is empty. Rethrows the first exception of queued work since the last call.
  void synchronize();

  /// Adds a warning of a kernel, one line for the user, unless this stream has had one of this kind.
  /// Thread-safe.
  void warn_once(const std::string& kind, std::string text);
  /// Returns and clears the warnings. Thread-safe.
  std::vector<std::string> take_warnings();

  /// Returns the per-stream state of type T, such as oneDNN engines and primitives. Creates it on first use
  /// as T(*this).
  template <class T>
  T& local() {
    std::shared_ptr<void>& slot = locals_[std::type_index(typeid(T))];
    if (!slot) slot = std::make_shared<T>(*this);
    return *static_cast<T*>(slot.get());
  }

 private:
  struct Worker;
  int threads_;
  std::unique_ptr<ThreadPool> pool_;
  CachingAllocator* memory_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> locals_;
  std::mutex warnings_mutex_;
  std::set<std::string> warned_;  // kinds
  std::vector<std::string> warnings_;
  std::unique_ptr<Worker> worker_;  // null for an inline stream
};

class CudaStream;

/// The stream of the meta device, whose tensors have no data: on() calls no kernel for it.
struct MetaStream {};

/// A reference to a stream of any kind. A CPU-only build has no CUDA streams.
#if defined(CONVOY_CUDA)
using Stream =
    std::variant<std::reference_wrapper<CpuStream>, std::reference_wrapper<CudaStream>, MetaStream>;
#else
using Stream = std::variant<std::reference_wrapper<CpuStream>, MetaStream>;
#endif

namespace detail {
/// Throws UsageError, which says that an op has a kernel for the CPU alone.
[[noreturn]] void fail_without_gpu_kernel();
}  // namespace detail

/// Calls f with the CpuStream or CudaStream that `stream` refers to, and returns its result. For a stream of
/// the meta device, returns a value-initialized result without a call. Example:
///   on(stream, [&](auto& s) { kernels::unary_forward(s, kernels::UnaryOp::relu, x, y); });
/// An f that takes a CpuStream& alone is a kernel without an overload for GPUs: for a CudaStream, on() throws
/// UsageError.
template <class F>
auto on(const Stream& stream, F&& f) {
  using Result = decltype(f(std::declval<CpuStream&>()));
  static_assert(!std::is_reference_v<Result>);
  return std::visit(
      [&](auto reference) -> Result {
        if constexpr (std::is_same_v<decltype(reference), MetaStream>)
          return Result();
        else if constexpr (std::is_invocable_v<F&, decltype(reference.get())>)
          return f(reference.get());
        else
          detail::fail_without_gpu_kernel();
      },
      stream);
}

/// Returns the number of cores that this process may run on, by its affinity mask.
int available_cores();

}  // namespace convoy

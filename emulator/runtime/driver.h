// The emulated driver: streams, events, graphs and memory behind the functions of the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "emulator/runtime/block.h"
#include "emulator/runtime/capture.h"
#include "emulator/runtime/emulator.h"
#include "emulator/runtime/launch_log.h"
#include "emulator/runtime/memory.h"

namespace convoy::emulator {

/// What cudaFuncSetAttribute has permitted to a kernel.
struct KernelSettings {
  std::size_t dynamic_bytes = kDefaultSharedBytes;  // of shared memory
  bool has_large_clusters = false;                  // of more than kMaxPortableCluster blocks
};
inline constexpr int kOldestWithClusters = 90;  // compute capability
inline constexpr unsigned kMaxPortableCluster = 8;
/// Returns the maximum shared memory of a block of a kernel that opts in, on a GPU of a compute capability.
std::size_t shared_limit(int capability);

/// The driver and the GPUs of this process. The caller of any function must hold lock(), which serializes the
/// host threads. Kernels run on the host thread that waits for them, or on the launching thread with eager
/// streams.
class Driver {
 public:
  /// Returns the driver of this process. It is never destroyed.
  static Driver& get();
  std::mutex& lock() { return lock_; }

  Settings settings;
  Memory memory;
  std::set<int> contexts;
  std::uint64_t launches = 0, event_nodes = 0, peer_copies = 0;
  bool is_counting = false;          // whether the accesses of kernels are counted
  std::vector<LaunchCounts> counts;  // of the operations since it is
  const std::string& report() const { return report_; }

  // The runtime's handles are addresses of these objects. For an invalid handle, find() returns null and
  // remove_…() returns false.
  EmulatedStream* add_stream(int gpu);
  EmulatedStream* find(cudaStream_t stream) const;
  EmulatedStream* null_stream(int gpu);
  bool remove_stream(cudaStream_t stream);
  EmulatedEvent* add_event(bool is_timed);
  std::shared_ptr<EmulatedEvent> find(cudaEvent_t event) const;
  bool remove_event(cudaEvent_t event) { return events_.erase(event) == 1; }

  /// Records `event` on `stream`. While the stream is captured, an external recording becomes a node of the
  /// graph.
  void record(EmulatedStream& stream, const std::shared_ptr<EmulatedEvent>& event, bool is_external = false);
  cudaError_t wait(EmulatedStream& stream, const std::shared_ptr<EmulatedEvent>& event);
  void launch(EmulatedStream& stream, Launch launch, const void* kernel);
  /// Returns the settings of a kernel that is known by its address, or else by the name of its launch: then those of
  /// all instances of a template.
  KernelSettings& kernel_settings(const void* kernel, const std::string& name);
  /// The host has waited for an event, or waits for all streams.
  void waited_for(const EmulatedEvent& event);
  void run_all_streams();
  /// Enqueues a library's work, which may access the memory of the stream's GPU. While the stream is
  /// captured, the work becomes a node and may run many times. `moved` is what it moves, for counts.
  void compute(EmulatedStream& stream, std::function<void()> work, LaunchCounts moved);
  /// Enqueues a copy of `bytes`, which may access the memory of every GPU; without `from`, a fill with
  /// `value`. Captured as in compute().
  void transfer(EmulatedStream& stream, void* to, const void* from, int value, std::size_t bytes);
  /// Enqueues a library's work that depends on other threads or processes. It is retried until it returns
  /// true. It opens the memory that it accesses.
  void attempt(EmulatedStream& stream, EmulatedStream::Operation work) { push(stream, std::move(work)); }
  /// Changes the number of objects that may enqueue such work. While it is above 0, run_until() waits for
  /// other threads or processes if no operation can run.
  void expect_external_work(int change) { external_ += change; }

  // Graphs. forbids_…() return true, and invalidate the capture, if a capture does not permit the call.
  cudaError_t begin_capture(EmulatedStream& stream, cudaStreamCaptureMode mode);
  cudaError_t end_capture(EmulatedStream& stream, cudaGraph_t* graph);
  bool forbids_allocation();
  bool forbids_release();
  EmulatedGraphExec* instantiate(cudaGraph_t graph);
  EmulatedGraphExec* find(cudaGraphExec_t executable) const;
  void launch(EmulatedStream& stream, EmulatedGraphExec& executable);
  bool remove_graph(cudaGraph_t graph) { return graphs_.erase(graph) == 1; }
  bool remove_executable(cudaGraphExec_t executable) { return executables_.erase(executable) == 1; }

  /// Runs queued work until `done` returns true or a kernel fails. Releases the lock while it waits for
  /// external work.
  void run_until(const std::function<bool()>& done);
  /// Runs queued work until `stream` is empty or a kernel fails.
  void run_all_of(const EmulatedStream& stream);
  /// Runs all operations that can run. Does not wait for external work.
  void run_all();
  /// Frees retired memory and destroyed streams if no queued work is left that could use them.
  void free_if_idle();
  /// Implement set() and reset() of emulator.h.
  void change(const Settings& now);
  void reset();

 private:
  Driver();
  /// Queues the operation, or adds it to the capture of the stream. All operations pass through here.
  void push(EmulatedStream& stream, EmulatedStream::Operation operation);
  /// Like push(), for work that takes the GPU's time.
  void push_work(EmulatedStream& stream, EmulatedStream::Operation work);
  bool invalidate_if(const std::function<bool(const Capture&)>& is_violated);
  bool step();
  /// Orders a blocking stream and the null stream, before an operation of `stream` is queued.
  void order_with_null_stream(EmulatedStream& stream);
  /// Returns the operation for the check of the streams' order, null if there is none.
  StreamOrder::Operation checked(EmulatedStream& stream, const std::string& what);
  void fail(const std::string& what);
  void add_counts(const Launch& launch, LaunchCounts counted);

  std::mutex lock_;
  std::string report_;
  int external_ = 0;  // objects that may enqueue external work
  std::mt19937_64 random_;
  StreamOrder::Operation replayed_;  // of the node of a graph that runs now, if accesses are checked
  std::vector<std::unique_ptr<EmulatedStream>>
      streams_;                                  // in creation order, so that random turns are repeatable
  std::map<int, EmulatedStream*> null_streams_;  // by GPU
  std::map<cudaEvent_t, std::shared_ptr<EmulatedEvent>> events_;
  std::map<cudaGraph_t, std::shared_ptr<EmulatedGraph>> graphs_;
  std::map<cudaGraphExec_t, std::unique_ptr<EmulatedGraphExec>> executables_;
  std::map<const void*, KernelSettings> kernel_settings_;
  std::map<std::string, KernelSettings> named_settings_;
  BlockRunner runner_;
  LaunchLog log_;
};

}  // namespace convoy::emulator

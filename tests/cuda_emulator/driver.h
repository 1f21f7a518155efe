// The emulated driver: streams, events and memory behind the runtime's functions.
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

#include "tests/cuda_emulator/block.h"
#include "tests/cuda_emulator/capture.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/launch_log.h"
#include "tests/cuda_emulator/memory.h"

namespace convoy::emulator {

/// What a machine's driver and GPUs are to a process. Whoever calls a function holds the lock, through which
/// the threads of the host take turns; kernels run in the thread that came to wait for them.
class Driver {
 public:
  static Driver& get();
  std::mutex& lock() { return lock_; }

  Settings settings;
  Memory memory;
  std::set<int> contexts;
  std::uint64_t launches = 0;
  const std::string& report() const { return report_; }

  // The handles that the runtime hands out are addresses; find… gives null, and remove_… false, for
  // one that is none.
  EmulatedStream* add_stream(int gpu);
  EmulatedStream* find(cudaStream_t stream) const;
  bool remove_stream(cudaStream_t stream);
  EmulatedEvent* add_event(bool is_timed);
  std::shared_ptr<EmulatedEvent> find(cudaEvent_t event) const;
  bool remove_event(cudaEvent_t event) { return events_.erase(event) == 1; }

  /// External: as a node where the stream is captured.
  void record(EmulatedStream& stream, const std::shared_ptr<EmulatedEvent>& event, bool is_external = false);
  cudaError_t wait(EmulatedStream& stream, const std::shared_ptr<EmulatedEvent>& event);
  void launch(EmulatedStream& stream, Launch launch, const void* kernel);
  /// A library's work, which may touch its own GPU's memory. Recorded where the stream is captured, and so
  /// possibly run often, as is a copy.
  void compute(EmulatedStream& stream, std::function<void()> work);
  /// A copy; may touch every GPU's memory.
  void transfer(EmulatedStream& stream, std::function<void()> work);
  /// A library's work with other threads or processes, tried again until they have come and it says true. It
  /// opens the memory that it touches.
  void attempt(EmulatedStream& stream, EmulatedStream::Operation work) { push(stream, std::move(work)); }
  /// One more, or one less, that has such work: who waits for a GPU where nothing can go on waits for others.
  void expect_others(int change) { others_ += change; }

  // Graphs. A capture that this thread has begun forbids it what is unsafe then; invalidates the capture.
  cudaError_t begin_capture(EmulatedStream& stream, cudaStreamCaptureMode mode);
  cudaError_t end_capture(EmulatedStream& stream, cudaGraph_t* graph);
  bool forbids_allocation();
  bool forbids_release();
  EmulatedGraphExec* instantiate(cudaGraph_t graph);
  EmulatedGraphExec* find(cudaGraphExec_t executable) const;
  void launch(EmulatedStream& stream, EmulatedGraphExec& executable);
  bool remove_graph(cudaGraph_t graph) { return graphs_.erase(graph) == 1; }
  bool remove_executable(cudaGraphExec_t executable) { return executables_.erase(executable) == 1; }

  /// Runs queued work until `done` (or a fault). Gives up the lock while it waits for others.
  void run_until(const std::function<bool()>& done);
  void run_all_of(const EmulatedStream& stream);
  /// All that can go on; waits for nobody.
  void run_all();
  /// Memory that was given back goes when no work is left that could want it.
  void free_if_idle();
  /// See emulator.h.
  void change(const Settings& now);
  void reset();

 private:
  Driver();
  /// The one way onto a stream: queues the operation, or records it where the stream is captured.
  void push(EmulatedStream& stream, EmulatedStream::Operation operation);
  bool invalidate_if(const std::function<bool(const Capture&)>& is_hurt);
  bool step();
  void fail(const std::string& what);

  std::mutex lock_;
  std::string report_;
  int others_ = 0;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<EmulatedStream>> streams_;  // in the order of their making, for random turns
  std::map<cudaEvent_t, std::shared_ptr<EmulatedEvent>> events_;
  std::map<cudaGraph_t, std::shared_ptr<EmulatedGraph>> graphs_;
  std::map<cudaGraphExec_t, std::unique_ptr<EmulatedGraphExec>> executables_;
  BlockRunner runner_;
  LaunchLog log_;
};

}  // namespace convoy::emulator

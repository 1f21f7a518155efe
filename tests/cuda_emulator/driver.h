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
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/launch_log.h"
#include "tests/cuda_emulator/memory.h"

/// Counts its recordings: the latest asked for, and the latest that its stream has come to.
struct EmulatedEvent {
  bool is_timed = false;
  std::uint64_t recorded = 0;
  std::uint64_t reached = 0;
  double reached_ms = 0;
};

/// A queue of operations of one GPU.
struct EmulatedStream {
  using Operation = std::function<bool()>;  // false: it has to wait, and nothing happened
  int gpu = 0;
  std::deque<Operation> queue;
};

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

  void record(EmulatedStream& stream, const std::shared_ptr<EmulatedEvent>& event);
  void wait(EmulatedStream& stream, const std::shared_ptr<EmulatedEvent>& event);
  void launch(EmulatedStream& stream, Launch launch, const void* kernel);
  /// A copy; may touch every GPU's memory.
  void transfer(EmulatedStream& stream, std::function<void()> work);

  /// Runs queued work until `done` (or a fault).
  void run_until(const std::function<bool()>& done);
  void run_all();
  void run_all_of(const EmulatedStream& stream);
  /// Memory that was given back goes when no work is left that could want it.
  void free_if_idle();
  /// See emulator.h.
  void change(const Settings& now);
  void reset();

 private:
  Driver();
  void push(EmulatedStream& stream, EmulatedStream::Operation operation);
  bool step();
  void fail(const std::string& what);

  std::mutex lock_;
  std::string report_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<EmulatedStream>> streams_;  // in the order of their making, for random turns
  std::map<cudaEvent_t, std::shared_ptr<EmulatedEvent>> events_;
  BlockRunner runner_;
  LaunchLog log_;
};

}  // namespace convoy::emulator

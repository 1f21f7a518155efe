// The emulated driver: memory, streams and events behind the runtime's functions.
#pragma once

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

/// A counter of its recordings: the latest asked for, and the latest that its stream has come to.
struct EmulatedEvent {
  std::uint64_t recorded = 0;
  std::uint64_t reached = 0;
  double reached_ms = 0;
};

struct EmulatedStream {
  struct Operation {
    enum class Kind : std::uint8_t { work, record, wait } kind;
    std::function<void()> work;
    std::shared_ptr<EmulatedEvent> event;
    std::uint64_t ticket = 0;
  };
  int device = 0;
  std::deque<Operation> queue;
};

namespace convoy::emulator {

/// All state, behind one lock: what a machine's driver and GPUs are to a process.
class Driver {
 public:
  static Driver& get();
  std::recursive_mutex& lock() { return lock_; }

  Settings settings;
  std::string report;
  std::set<int> contexts;
  std::uint64_t launches = 0;

  // Streams and events are known by the addresses that the runtime hands out.
  cudaStream_t add_stream(int device);
  void remove_stream(cudaStream_t stream);
  cudaEvent_t add_event();
  void remove_event(cudaEvent_t event);
  std::shared_ptr<EmulatedEvent> find(cudaEvent_t event);

  /// Queues an operation; under Streams::eager also runs it.
  void push(cudaStream_t stream, EmulatedStream::Operation operation);
  /// Runs queued work, streams in turns, until `done` or nothing is left.
  void run_until(const std::function<bool()>& done);
  void run_all();

  void* allocate(int device, std::size_t bytes);  // nullptr where there is no more
  bool release(void* block);                      // false: it is none of ours
  void* allocate_pinned(std::size_t bytes);
  bool release_pinned(void* block);
  bool is_on_device(const void* begin, std::size_t bytes) const;
  bool is_pinned(const void* begin, std::size_t bytes) const;
  std::size_t used(int device) const;

  void launch(cudaStream_t stream, Launch launch, const void* kernel);
  void fail(const std::string& what);

 private:
  struct Block {
    std::size_t bytes;
    int device;
  };
  Driver();
  void write_log() const;
  bool step();
  void open_memory();
  void close_memory();

  std::recursive_mutex lock_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<EmulatedStream>> streams_;
  std::map<cudaEvent_t, std::shared_ptr<EmulatedEvent>> events_;
  std::map<const void*, Block> blocks_;  // device memory
  std::map<const void*, std::size_t> pinned_;
  std::set<const void*> kernels_;  // launched ones, for the log
  BlockRunner runner_;
  bool running_ = false;

  friend void convoy::emulator::set(const Settings&);
};

/// The block runner that runs now.
BlockRunner& current_block();

}  // namespace convoy::emulator

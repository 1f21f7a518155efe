// The test interface of the emulated GPUs: settings, reports and counters. The engine sees only include/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "emulator/counting/launch_counts.h"

namespace convoy::emulator {

/// The order in which the blocks of a kernel, and the threads of a block, run. Results must not depend on it:
/// a missing barrier gives a wrong result in one order and a right one in another.
enum class Order : std::uint8_t { ascending, descending, random };

/// When queued work runs. `eager`: at once; the nodes of a graph run in capture order. `random`: when the
/// host waits, with the streams in random turns that respect their events, which exposes a missing wait; the
/// nodes of a graph run in a random order that respects their dependencies.
enum class Streams : std::uint8_t { eager, random };

inline constexpr int kOldestCode = 80;

struct Settings {
  int gpus = 0;
  int driver_version = 0;                           // as cudaDriverGetVersion returns it; 0: no driver
  std::size_t memory_bytes = std::size_t{4} << 30;  // of each GPU
  std::size_t pinned_bytes = std::size_t{4} << 30;  // maximum amount of pinned host memory
  Order order = Order::ascending;
  Streams streams = Streams::eager;
  std::uint64_t seed = 1;  // seed of the random orders
  int capability = 90;     // compute capability of each GPU: 90 is 9.0
  /// The architecture of the newest code of all kernels, whose PTX later GPUs compile; the oldest is kOldestCode.
  int code = 90;
  int multiprocessors = 132;  // of each GPU
  /// Whether the null stream exists. Otherwise work on it is an error, since Convoy never uses it.
  bool has_null_stream = false;
  /// The time in milliseconds that NCCL needs to create a communicator, and again for its first collective.
  int nccl_connection_ms = 0;
  /// If set, events measure simulated times only, and the host takes this time to enqueue a kernel, a copy or
  /// a library's work. A stream that has nothing else to do waits for it, as a GPU does. For eager streams.
  /// Work without a simulated time takes none.
  std::optional<double> launch_ms = {};
};

/// Lets tensor cores compute, which is the default, or not. If not, ldmatrix and wgmma give zeros
/// and are counted all the same, but threads do not wait for each other in them, and misuse of wgmma is not
/// found. Counting a large convolution then takes seconds instead of minutes.
void set_tensor_cores_compute(bool computes);

/// Returns the current settings. At the start, they come from the environment (emulator/README.md):
/// CONVOY_EMULATED_GPUS=N, CONVOY_EMULATED_MEMORY=BYTES, CONVOY_EMULATOR_ORDER=ascending|descending|random,
/// CONVOY_EMULATOR_STREAMS=eager|random, CONVOY_EMULATOR_SEED=N, CONVOY_EMULATED_CAPABILITY=MAJOR.MINOR,
/// CONVOY_EMULATED_MULTIPROCESSORS=N, CONVOY_EMULATED_NCCL_CONNECTION=MILLISECONDS.
Settings settings();
/// Runs all queued work that can run, then changes the settings.
void set(const Settings& settings);

/// Runs all queued work that can run. Returns the first error of a kernel since the last reset(), or the first
/// finding if accesses are checked (CUEMU_CHECK=1), or "".
/// Examples are a barrier that not all threads reach and a shuffle from a lane outside the mask. The report
/// is also printed when the error occurs. After an error, every call of the runtime fails until reset(), as
/// on a GPU after a fault.
std::string report();
/// Clears the report, the findings, the queued work and the set of contexts.
void reset();

/// Returns the GPUs on which a call has created a context since the last reset.
std::set<int> contexts();
/// Returns the number of kernel launches of this process. A captured launch counts once, its replays do not.
std::uint64_t launches();
/// Returns the number of event recordings that have become nodes of graphs in this process.
std::uint64_t event_nodes();
/// Returns the number of calls of cudaMemcpyPeerAsync of this process.
std::uint64_t peer_copies();

/// Returns whether this program's kernels were compiled for counting (convoy_counted_kernels).
bool can_count();
/// Starts to count the memory accesses of the kernels that run from now on, also of graphs that are replayed.
void start_counting();
/// Runs all queued work that can run, stops counting, and returns the counts of each launch, in the order of
/// execution.
std::vector<LaunchCounts> stop_counting();

/// Changes the settings and restores the previous ones in the destructor.
class ScopedSettings {
 public:
  explicit ScopedSettings(const Settings& now) : before_(settings()) { set(now); }
  ~ScopedSettings() { set(before_); }
  ScopedSettings(const ScopedSettings&) = delete;
  ScopedSettings& operator=(const ScopedSettings&) = delete;

 private:
  Settings before_;
};

/// Maximum shared memory of a block unless its kernel opts in to more by cudaFuncSetAttribute, and with it. What a
/// GPU has is in between (shared_limit() in driver.h).
inline constexpr std::size_t kDefaultSharedBytes = std::size_t{48} << 10;
inline constexpr std::size_t kMaxSharedBytes = std::size_t{227} << 10;

/// The value of every byte of uninitialized device and shared memory: NaN in every floating-point type, -1 in
/// signed integers.
inline constexpr int kUninitialized = 0xff;

}  // namespace convoy::emulator

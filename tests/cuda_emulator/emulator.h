// The emulated GPUs: what tests may set and ask. Everything in include/ is what the engine sees of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

namespace convoy::emulator {

/// In which order the blocks of a kernel, and the threads of a block, run. Results may not depend on it: a
/// missing barrier shows in one order and hides in another.
enum class Order : std::uint8_t { ascending, descending, random };

/// When queued work runs: at once, or not before the host waits for some of it, and then the streams take
/// turns at random as far as their events allow, which shows a missing wait. A graph's nodes run in the order
/// of their recording, or in a random one that their dependencies allow.
enum class Streams : std::uint8_t { eager, random };

struct Settings {
  int gpus = 0;
  int driver_version = 0;                           // as cudaDriverGetVersion codes it; 0: no driver
  std::size_t memory_bytes = std::size_t{4} << 30;  // of each GPU
  std::size_t pinned_bytes = std::size_t{4} << 30;  // of the host's memory, at most
  Order order = Order::ascending;
  Streams streams = Streams::eager;
  std::uint64_t seed = 1;  // of the random orders
  int capability = 90;     // of each GPU: 90 is 9.0
};

/// At the start, from the environment (README.md): CONVOY_EMULATED_GPUS=N, CONVOY_EMULATED_MEMORY=BYTES,
/// CONVOY_EMULATOR_ORDER=ascending|descending|random, CONVOY_EMULATOR_STREAMS=eager|random,
/// CONVOY_EMULATOR_SEED=N, CONVOY_EMULATED_CAPABILITY=MAJOR.MINOR.
Settings settings();
/// Runs what is queued, then changes the settings.
void set(const Settings& settings);

/// Runs what is queued; then what a kernel did wrong first since the last reset, "" where none did: a barrier
/// that not all threads reached, a shuffle from a lane outside the mask, … Also printed when it happens.
/// Until a reset every call of the runtime fails, as on a GPU after a fault.
std::string report();
/// Forgets the fault, the work that waited behind it, and the contexts.
void reset();

/// GPUs on which some call has made a context since the last reset.
std::set<int> contexts();
/// Kernels launched so far in this process, several launches of one counted each, those recorded once.
std::uint64_t launches();

/// Puts back the settings that it found.
class ScopedSettings {
 public:
  explicit ScopedSettings(const Settings& now) : before_(settings()) { set(now); }
  ~ScopedSettings() { set(before_); }
  ScopedSettings(const ScopedSettings&) = delete;
  ScopedSettings& operator=(const ScopedSettings&) = delete;

 private:
  Settings before_;
};

/// Most shared memory of a block, unless a kernel has asked for more, which the emulator does not offer.
inline constexpr std::size_t kMaxSharedBytes = std::size_t{48} << 10;

/// Each byte of device and shared memory that nobody has written: a NaN in every floating-point type, -1 in
/// the signed ones.
inline constexpr int kUninitialized = 0xff;

}  // namespace convoy::emulator

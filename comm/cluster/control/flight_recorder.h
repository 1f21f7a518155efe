// The flight recorder: the last events of a rank, in memory that outlives its process.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "convoy/comm/cluster/control/phase.h"
#include "convoy/comm/core/collective.h"

namespace convoy::dist {

/// One event of a rank: 128 bytes without pointers, so that other processes can read it.
struct FlightEvent {
  /// What has happened.
  enum class Kind : std::uint8_t {
    phase,       // the rank has entered `phase`
    launched,    // the rank has launched a collective
    started,     // the communication stream has reached it
    completed,   // it has completed
    allocation,  // of `collective.count` bytes
    warning,     // `text`
    failure      // `text`
  };

  std::int64_t time = 0;  // steady clock, in nanoseconds
  std::int64_t step = 0;  // of the training
  CollectiveSignature collective;
  Kind kind = Kind::phase;
  Phase phase = Phase::start;     // at the time of the event
  std::uint8_t communicator = 0;  // index of RankSlot::communicators
  std::uint8_t unused = 0;
  std::array<char, 84> text{};  // null-terminated, possibly truncated

  /// Sets `text`, truncated to its size.
  void set_text(std::string_view value);
};
static_assert(sizeof(FlightEvent) == 128);

/// The last kEvents events of a rank, in shared memory. Any thread of the rank may add an event, which takes
/// about 50 ns. Any process may read at any time, also after the rank was killed in the middle of an
/// addition: it then misses this event. Zero-filled memory is an empty ring.
class FlightRing {
 public:
  static constexpr std::size_t kEvents = 1024;  // of which one may be incomplete

  /// Adds an event, in place of the oldest one.
  void add(const FlightEvent& event) noexcept;
  /// Returns the events, oldest first.
  std::vector<FlightEvent> events() const;

 private:
  static constexpr std::size_t kWords = sizeof(FlightEvent) / sizeof(std::uint64_t);
  struct Entry {
    /// 1 + the number of the event; 0 while it is being written.
    std::atomic<std::uint64_t> version;
    std::array<std::atomic<std::uint64_t>, kWords> words;
  };
  std::atomic<std::uint64_t> count_;  // of all events so far
  std::array<Entry, kEvents> entries_;
};

/// Returns the present time of the steady clock in nanoseconds, which all processes of a host share.
std::int64_t steady_nanoseconds();

}  // namespace convoy::dist

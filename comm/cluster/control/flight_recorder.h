// The flight recorder: the last events of a rank, in memory that outlives its process, and the files that they
// become when a job fails.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/cluster/control/rank_status.h"
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

class HostMemory;

/// An event of a flight recorder as text, for reports and timelines.
struct RecordedEvent {
  std::int64_t time = 0;  // nanoseconds since the epoch, of the host's wall clock
  std::string kind;       // "phase", "launched", "started", "completed", "allocation", "warning", "failure"
  std::string phase;      // at the time of the event: "data"
  std::int64_t step = 0;  // of the training
  std::string communicator;  // "gradients"; empty without a collective
  std::uint64_t number = 0;  // of the collective on its communicator
  std::string text;          // the collective, the bytes or the message
};

/// The contents of one file.
struct FlightFile {
  int format = 0;   // 1
  std::string job;  // a random name, equal on all ranks of a job
  int world_size = 0;
  std::string verdict;                // why the job has ended
  std::int64_t time = 0;              // at which the file was written, as in RecordedEvent
  RankStatus status;                  // at that time
  std::vector<RecordedEvent> events;  // oldest first
};

/// Writes `directory`/rank-N.json for each rank of this host, and creates the directory. Throws DataError if
/// that fails.
void write_flight_files(const HostMemory& memory, const std::vector<RankInfo>& all,
                        const std::filesystem::path& directory);

/// Reads all files rank-N.json of a directory, in rank order. Files of an earlier job are left out, and
/// counted in `ignored`. Throws DataError if there is none, or if one is damaged.
std::vector<FlightFile> read_flight_files(const std::filesystem::path& directory, int& ignored);

}  // namespace convoy::dist

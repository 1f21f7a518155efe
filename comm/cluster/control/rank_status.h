// RankStatus: what is known about one rank at one moment, and the sentences that describe it and its phase.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convoy/comm/core/rank_observer.h"
#include "convoy/comm/core/waits.h"

namespace convoy::dist {

/// Returns the name of a phase, as in files: "data".
std::string_view phase_name(Phase phase);
/// Returns the phase of this name; nullopt if there is none.
std::optional<Phase> find_phase(std::string_view name);
/// Returns what a rank does, for messages: "in the data loader", which continues "rank 2 has been".
std::string_view to_string(Phase phase);
/// Returns what limits how long other ranks wait for a rank in this phase: Wait::storage if it reads or writes
/// files, otherwise Wait::collective.
Wait limit_of(Phase phase);

/// The first phase of a training step, and their number: those up to Phase::between.
constexpr int kFirstStepPhase = static_cast<int>(Phase::data);
constexpr int kStepPhases = static_cast<int>(Phase::between) - kFirstStepPhase + 1;

/// A snapshot of one rank. Times are ages in seconds, because the clocks of hosts differ.
struct RankStatus {
  enum class Life : std::uint8_t {
    running,
    stopped,  // suspended by a signal, such as SIGSTOP
    traced,   // suspended by a debugger
    dead,     // the process has exited without leaving
    lost,     // the connection to its host has closed
    left      // the rank has left in order
  };
  /// The collective that a rank is in.
  struct Collective {
    std::string communicator;  // "gradients"
    std::uint64_t number = 0;
    std::string text;    // "all-reduce 417 (1024 f32), bucket 3"
    double seconds = 0;  // for how long
  };
  /// How far a rank is on one communicator.
  struct Progress {
    std::string communicator;
    std::uint64_t launched = 0, completed = 0;  // numbers of collectives
  };

  /// The means of the last block of steps. All ranks have about the same blocks, each of the same time.
  struct Pace {
    std::uint64_t block = 0;  // number of blocks so far
    double step_seconds = 0;
    std::vector<double>
        own_seconds;  // of these, by phase of a step, without waits for streams: for other ranks
  };

  int rank = 0;
  std::string host;
  int process = 0;
  Life life = Life::running;
  int signal = 0;  // that has ended the process; 0: unknown, or none
  Phase phase = Phase::start;
  std::int64_t step = 0;
  double phase_seconds = 0;             // since the phase began
  double progress_seconds = 0;          // since the last progress
  double beat_seconds = 0;              // since the last sign of life
  double io_seconds = 0;                // since its process has read or written bytes, in this phase
  std::vector<Collective> collectives;  // in which it is, usually none or one
  std::vector<Progress> progress;       // of all of its communicators
  Pace pace;                            // block 0: unknown
  std::uint64_t stop_points = 0;        // passed so far (JobControl::stop_code())
  int stop_code = 0;                    // 0: none
  std::string stack;            // where its thread is (stack_of()), if the rank may hold up the others
  std::string failure;          // the error that ends the rank; empty: none
  double failed_seconds = 0;    // since the failure
  bool failed_by_peer = false;  // the failure is a consequence of that of another rank
  /// Further ranks that this status describes (status_group.h), as ranges: the first rank and the last.
  std::vector<std::pair<int, int>> others;

  /// Returns whether the rank's process runs and has shown a sign of life in the last seconds.
  bool is_responsive() const { return life == Life::running && beat_seconds < kResponsiveSeconds; }
  /// Returns what limits how long other ranks wait for this rank. In a collective, it waits itself.
  Wait limit() const {
    if (life == Life::traced) return Wait::debugger;
    return is_responsive() && collectives.empty() ? limit_of(phase) : Wait::collective;
  }

  static constexpr double kResponsiveSeconds = 2;
};

/// Converts a status to JSON, for the agents of other hosts and for the files of the flight recorder.
void to_json(nlohmann::json& json, const RankStatus& rank);
/// Converts the JSON of to_json(). Throws DataError for any other.
void from_json(const nlohmann::json& json, RankStatus& rank);

/// Returns what a rank does: "rank 2 on b has been in the data loader for 31 s (step 17)".
std::string describe(const RankStatus& rank);

/// Returns who holds up the job, if no rank has made progress for a while: "ranks 0, 1 wait in all-reduce 417
/// (1024 f32), bucket 3 (gradients): rank 2 on b has been in the data loader for 31 s (step 17)".
std::string describe_stall(std::span<const RankStatus> ranks);

/// Returns the first cause of the end of the job; nullopt if no rank has failed or died. Failures that are no
/// consequence of another one count first, then the earliest.
struct FirstCause {
  std::string text;  // "rank 2: out of memory (on b; it was in the backward pass, step 17)"
  bool is_consequence = false;
};
std::optional<FirstCause> first_cause(std::span<const RankStatus> ranks);

}  // namespace convoy::dist

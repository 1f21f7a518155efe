// What keeps ranks informed of each other while none of them waits for another.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/deadline.h"
#include "kernels/runtime/stream_event.h"

namespace convoy {

/// What a rank says of itself in each beat.
struct Beat {
  std::uint64_t entered = 0;  // collectives that its GPU has come to
  std::uint64_t left = 0;     // and has done
  std::uint64_t is_ending = 0;
};

/// Exchanges a Beat over and over, on a communicator of the CPU of its own. So there is always a collective
/// under way that fails when a rank dies, leaves or gives up, and at the deadline when one is stopped. Owns
/// no thread: one that has time calls tick() often.
class Heartbeat {
 public:
  explicit Heartbeat(std::unique_ptr<Communicator> comm);

  /// Takes the beat that has come, if one has, and starts the next when it is time to. Does not wait. Throws
  /// PeerError where the ranks have lost each other.
  void tick(const Beat& mine);
  /// Every rank's, by rank, as it was about kPeriod ago; all zero before the first has come.
  const std::vector<Beat>& latest() const { return latest_; }
  /// True on all ranks after the same beat: none follows.
  bool is_over() const;
  /// The farewell, after is_over(); waits.
  void finish() { comm_->finish(); }
  void abort(const std::string& reason) noexcept { comm_->abort(reason); }  // from any thread

 private:
  void start(const Beat& mine);

  Beat mine_;  // in the beat under way
  std::vector<Beat> arriving_, latest_;
  std::unique_ptr<Communicator> comm_;  // after what its thread reads and writes
  StreamEvent came_;
  bool is_under_way_ = false;
  Deadline next_{0};
};

}  // namespace convoy

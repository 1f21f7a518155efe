// A periodic exchange of progress counters between ranks, which detects peers that fail or exit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/core/communicator.h"
#include "convoy/comm/core/deadline.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy::dist {

/// The state of one rank that every exchange sends to all ranks.
struct HeartbeatMessage {
  std::uint64_t started = 0;    // collectives that the rank's GPU has started
  std::uint64_t completed = 0;  // collectives that the rank's GPU has completed
  std::uint64_t finishing = 0;  // 1 once the rank has called NcclWatchdog::finish()
};

/// A repeated all-gather of HeartbeatMessages on a CPU communicator of its own. One collective is always in
/// flight. It fails at once when a peer dies, exits or aborts, and at the communicator's timeout when a peer
/// is suspended. The class owns no thread: one thread calls exchange() often.
class Heartbeat {
 public:
  /// Takes ownership of `comm`, a CPU communicator that nothing else uses.
  explicit Heartbeat(std::unique_ptr<Communicator> comm);

  /// Stores the result of the exchange in flight if it has completed, and starts the next one when it is due.
  /// Does not wait. Throws PeerError if the exchange failed because a peer died, exited, aborted or timed
  /// out.
  void exchange(const HeartbeatMessage& local);
  /// Returns the messages of the last completed exchange, by rank: all zero before the first. They are about
  /// kPeriod (heartbeat.cpp) old.
  const std::vector<HeartbeatMessage>& latest() const { return latest_; }
  /// Returns true once all ranks have reported that they are finishing. The result turns true after the same
  /// exchange on all ranks, and no further exchange starts.
  bool all_finishing() const;
  /// Finishes the communicator. Collective; call it once all_finishing() is true. Blocks until all ranks call
  /// it.
  void finish() { comm_->finish(); }
  /// Aborts the exchange on all ranks, which then throw PeerError with `reason`. Thread-safe.
  void abort(const std::string& reason) noexcept { comm_->abort(reason); }

 private:
  void start(const HeartbeatMessage& local);

  HeartbeatMessage local_;  // sent by the exchange in flight
  std::vector<HeartbeatMessage> received_;
  std::vector<HeartbeatMessage> latest_;
  std::unique_ptr<Communicator> comm_;  // declared after the buffers that its thread reads and writes
  Event exchanged_;
  bool in_flight_ = false;
  Deadline next_exchange_{0};
};

}  // namespace convoy::dist

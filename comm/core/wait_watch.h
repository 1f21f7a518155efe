// How a rank at the end of a deadline tells the ranks that are missing from those that wait as well.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/deadline.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

/// The waits of one rank for messages. Along a sparse graph a rank may wait for one that waits for the missing rank. So
/// a rank that waits tells its peers so, again and again. At its deadline, it names the ranks that have not told it
/// lately; if there are none, it goes on until one of them sends the reason.
class WaitWatch {
 public:
  /// `ranks` is the number of ranks.
  explicit WaitWatch(int ranks) : told_(static_cast<std::size_t>(ranks)) {}

  /// Returns whether this rank has to tell its peers now that it waits: once a second, or more often with a short
  /// timeout. `begins` if the wait begins.
  bool is_due(const Deadline& deadline, bool begins = false) {
    const bool is_due = !begins && Clock::now() >= due_;
    if (begins || is_due) due_ = Clock::now() + seconds(std::min(1.0, deadline.seconds() / 8));
    return is_due;
  }
  /// Records that a peer has told this rank that it waits in a round (MessageLinks::set_round()).
  void set_told(int rank, std::uint64_t round) {
    told_[static_cast<std::size_t>(rank)] = Clock::now();
    last_round_ = std::max(last_round_, round);
  }
  /// Returns the last round in which a peer waits or has waited; 0 if none has told.
  std::uint64_t last_round() const { return last_round_; }

  /// Throws PeerError if the deadline of rank `rank`, which has passed, counts. The message names those of the ranks `pending` that
  /// have not told this rank in the last half of the timeout that they wait. If all have, it throws after another timeout.
  void check(const Deadline& deadline, int rank, const std::vector<int>& pending) const {
    std::vector<int> missing;
    for (const int other : pending)
      if (Clock::now() - told_[static_cast<std::size_t>(other)] > seconds(deadline.seconds() / 2))
        missing.push_back(other);
    if (missing.empty() && !deadline.plus(deadline.seconds()).passed()) return;
    fail<PeerError>("rank {} waited {} s for {}", rank, deadline.seconds(),
                    format_ranks(missing.empty() ? pending : missing));
  }

 private:
  using Clock = Deadline::Clock;
  static Clock::duration seconds(double count) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
  }

  Clock::time_point due_;
  std::vector<Clock::time_point> told_;  // by rank
  std::uint64_t last_round_ = 0;
};

}  // namespace convoy::dist

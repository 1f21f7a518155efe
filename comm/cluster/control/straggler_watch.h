// StragglerWatch: finds the ranks that make every step of the others longer.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "convoy/comm/cluster/control/rank_status.h"

namespace convoy::dist {

/// Compares the paces of all ranks. A rank is slow by the time by which its own part of a step exceeds the median
/// of the other ranks. It is named if that is kSlow of their step in the median of the blocks of a window, and at
/// least half as much in all but kOutliers of them. So neither a short stall names a rank, nor the noise of a
/// loaded machine, which changes sides.
class StragglerWatch {
 public:
  /// The default length of a window. Pauses that every machine has, as for its page cache, take less.
  static constexpr double kWindowSeconds = 60;
  /// The blocks of a window, and those that may differ: chance does not choose the same rank in all others.
  static constexpr int kBlocks = 12, kOutliers = 2;
  /// The fraction of a step. Processors of one kind differ by less.
  static constexpr double kSlow = 0.05;

  /// Considers the ranks of a whole job. Does nothing until all have another block. Returns a sentence for each
  /// rank that has become slow: "rank 2 on b has been 7 % slower than the other ranks for 60 s, most of it in
  /// the data loader (step 17)". A rank is named again only after it was not slow in between.
  std::vector<std::string> observe(std::span<const RankStatus> ranks, double window_seconds);

 private:
  std::uint64_t considered_ = 0;  // number of the last block
  /// Of the last blocks, by rank: the excess in each phase in seconds, and in the whole step as a fraction of it.
  std::deque<std::vector<std::vector<double>>> window_;
  std::vector<bool> is_named_;  // by rank
};

}  // namespace convoy::dist

// Which samples are in which batch: pure arithmetic on (seed, epoch, step, rank), so that every rank knows
// its part without a message, and a resume needs nothing but the step.
#pragma once

#include <cstdint>
#include <vector>

namespace convoy {

/// The order of an epoch: a permutation of [0, n) that depends on (seed, epoch) alone (Fisher and Yates,
/// drawn from Philox).
std::vector<std::int32_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch);

/// This rank's half-open share of `count` items: sizes differ by at most one, earlier ranks get the larger
/// ones (128 on 3 ranks: 43, 43, 42).
struct Share {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};
Share share_of(std::int64_t count, int rank, int world);

/// How an epoch is cut: positions into updates of one global batch, an update into the ranks' shares, a share
/// into micro-batches. Every rank has the same number of micro-batches in an update, so that all join the
/// same collectives; a rank with fewer samples than that gets empty ones at the end.
struct BatchPlan {
  std::int64_t samples = 0;  // of the whole set
  std::int64_t global_batch = 1;
  std::int64_t micro_batch = 0;  // most samples a rank holds at once; 0: its whole share
  int rank = 0;
  int world = 1;

  std::int64_t steps() const;                               // updates of an epoch
  std::int64_t global_count(std::int64_t step) const;       // samples of all ranks in this update
  std::int64_t micro_batches(std::int64_t step) const;      // on every rank, at least 1
  std::int64_t micro_batches_of(std::int64_t count) const;  // the same for an update of `count` samples
  /// Positions in the epoch's order of this rank's micro-batch `index` of the update.
  Share positions(std::int64_t step, std::int64_t index) const;
};

}  // namespace convoy

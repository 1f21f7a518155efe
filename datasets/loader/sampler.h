// The assignment of samples to batches. It is a pure function of (seed, epoch, step, rank), so ranks do not
// communicate, and resuming needs only the step. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "convoy/datasets/dataset.h"

namespace convoy::data {

/// Returns the sample order of an epoch: a permutation of [0, n) that depends only on (seed, epoch). It is a
/// Fisher-Yates shuffle with Philox. Throws UsageError unless 0 <= n < 2^31 and 0 <= epoch < 2^24.
std::vector<std::int32_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch);

/// Returns the sample order of an epoch in which each class has the same number of samples, or one more or less. It has
/// as many samples as `labels`, i32 [n], and depends only on them, seed and epoch. The samples of a class follow in
/// random order, which begins again when they are used up. The number of a sample is its row plus n times how often the
/// epoch has had it before, so that each repetition has random keys of its own.
std::vector<std::int32_t> balanced_order(const std::vector<std::int32_t>& labels, std::uint64_t seed,
                                         std::int64_t epoch);

/// A half-open range of positions.
struct Range {
  std::int64_t begin = 0;  // the first position
  std::int64_t end = 0;    // the position after the last one
  /// Returns the number of positions.
  std::int64_t size() const { return end - begin; }
};

/// Returns the shard of `rank` in `count` items. Sizes differ by at most one, and the first ranks have the
/// larger shards (128 items on 3 ranks: 43, 43, 42).
Range shard_range(std::int64_t count, int rank, int world_size);

/// The division of an epoch into steps of one global batch, of a step into one shard per rank, and of a shard
/// into micro-batches. Every rank has the same number of micro-batches per step, so that all ranks call the
/// same collectives. A rank with fewer samples has empty micro-batches at the end.
struct BatchPlan {
  std::int64_t samples = 0;       // of an epoch
  std::int64_t global_batch = 1;  // samples per step on all ranks
  std::int64_t micro_batch = 0;   // maximum samples per rank; 0: the whole shard
  int rank = 0;                   // this rank, from 0
  int world_size = 1;             // number of ranks
  std::int64_t block = 0;         // of a set with a source: samples that are read as a whole

  /// Returns the number of steps per epoch.
  std::int64_t steps() const;
  /// Returns the number of samples of all ranks in a step.
  std::int64_t global_count(std::int64_t step) const;
  /// Returns the number of micro-batches of every rank in a step; at least 1.
  std::int64_t micro_batches(std::int64_t step) const;
  /// Returns the number of micro-batches of every rank in a step with `count` samples; at least 1.
  std::int64_t micro_batches_of(std::int64_t count) const;
  /// Returns the number of samples in the smallest micro-batch of all ranks in a step.
  std::int64_t smallest_micro_batch(std::int64_t step) const;
  /// Returns the positions of this rank's micro-batch `index` of a step in the order of the epoch.
  Range positions(std::int64_t step, std::int64_t index) const;
  /// Returns the position whose sample is the partner of that of `position` for mixup and CutMix: the
  /// position before it in the global batch, and of the first one the last. It depends on neither ranks nor
  /// micro-batches.
  std::int64_t partner(std::int64_t position) const;
};

/// Holds out a part of the training images for decisions, such as which checkpoint is the best. Divides a set into a part to train on, the first result, and a part of `count` images, the second. Each
/// class has in both parts the fraction of images that it has in the set, rounded such that the sum is
/// `count`, and keeps at least one image to train on. The images are drawn by `seed`, and keep their order.
/// The result depends on nothing else. Throws UsageError unless `count` is at least 1 and leaves one image
/// per class.
std::pair<ImageSet, ImageSet> hold_out(const ImageSet& set, std::int64_t count, std::uint64_t seed);

}  // namespace convoy::data

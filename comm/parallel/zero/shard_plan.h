// The assignment of gradient and parameter elements to the ranks that own them (ZeRO).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "convoy/comm/parallel/bucket_plan.h"

namespace convoy::dist {

/// A division of every bucket into one shard per rank, all of the same size. Shard boundaries ignore where
/// parameters begin. So the shards of all ranks hold the same number of elements, to within kAlignment bytes
/// per bucket and the gaps between parameters, and one reduce-scatter per bucket gives each rank the sums of
/// its shard. (Rajbhandari et al., ZeRO, arXiv:1910.02054) A plan is a value, and its functions are
/// thread-safe.
struct ShardPlan {
  /// Alignment of shards in bytes, so that vector loads are aligned.
  static constexpr std::size_t kAlignment = 64;

  /// The elements [begin, begin + numel) of one parameter, which are contained in one rank's shard of one
  /// bucket.
  struct Piece {
    std::size_t parameter = 0;  // number of the parameter
    std::int64_t begin = 0;     // the first element, in the flat parameter
    std::int64_t numel = 0;     // number of elements
    std::size_t bucket = 0;     // number of the bucket
    std::int64_t offset = 0;    // in elements from the begin of the rank's shard of the bucket
    /// Compares all members.
    friend bool operator==(const Piece&, const Piece&) = default;
  };
  /// Number of ranks.
  int ranks = 1;
  /// Elements of one rank's shard of each bucket, including gaps and padding.
  std::vector<std::int64_t> shard_numels;
  /// The pieces of each rank, ordered by bucket and then by slice.
  std::vector<std::vector<Piece>> pieces;

  /// Divides the buckets of `plan` among `ranks` ranks. Throws UsageError if a rank would get no element,
  /// which means that the model is too small for so many ranks.
  static ShardPlan of(const BucketPlan& plan, int ranks, std::size_t element_bytes);

  /// Returns the number of elements of a bucket, padded so that all shards have the same size.
  std::int64_t numel(std::size_t bucket) const { return shard_numels[bucket] * ranks; }
  /// Returns the maximum of numel() over all buckets.
  std::int64_t max_numel() const;
};

}  // namespace convoy::dist

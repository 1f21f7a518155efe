// Which elements of a model are whose, where every rank keeps a part of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/bucket_plan.h"

namespace convoy {

/// Every bucket is cut into as many equal parts as there are ranks, without regard to where parameters begin:
/// so the parts of all ranks are alike to within kAlignment bytes a bucket (and the few gaps between
/// parameters), and a reduce-scatter gives a rank the sums of its part. (Rajbhandari et al., ZeRO,
/// arXiv:1910.02054)
struct ShardPlan {
  /// Where parts begin, in bytes: whole vector loads.
  static constexpr std::size_t kAlignment = 64;

  /// What one rank has of one parameter: elements [begin, begin + numel) of it.
  struct Piece {
    std::size_t parameter = 0;
    std::int64_t begin = 0;
    std::int64_t numel = 0;
    std::size_t bucket = 0;
    std::int64_t offset = 0;  // in the rank's part of the bucket
    friend bool operator==(const Piece&, const Piece&) = default;
  };
  int ranks = 1;
  std::vector<std::int64_t> parts;         // by bucket: elements of each rank's part, gaps and all
  std::vector<std::vector<Piece>> pieces;  // by rank; of a rank bucket by bucket, in the order of slices

  /// UsageError where a rank would have nothing: more ranks than the model can be cut for.
  static ShardPlan of(const BucketPlan& plan, int ranks, std::size_t element_bytes);

  /// Elements of a bucket, filled up such that it can be cut.
  std::int64_t numel(std::size_t bucket) const { return parts[bucket] * ranks; }
  /// The most elements that a bucket has.
  std::int64_t largest() const;
};

}  // namespace convoy

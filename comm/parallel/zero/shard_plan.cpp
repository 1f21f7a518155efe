#include "convoy/comm/parallel/zero/shard_plan.h"

#include <algorithm>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {

ShardPlan ShardPlan::of(const BucketPlan& plan, int ranks, std::size_t element_bytes) {
  check(ranks >= 1, "shard plan: found {} ranks, expected 1 or more", ranks);
  check(element_bytes > 0 && kAlignment % element_bytes == 0,
        "shard plan: found elements of {} bytes, expected a divisor of {}", element_bytes, kAlignment);
  const auto step = static_cast<std::int64_t>(kAlignment / element_bytes);
  ShardPlan shards{.ranks = ranks, .shard_numels = {}, .pieces = {}};
  shards.pieces.resize(static_cast<std::size_t>(ranks));
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const std::int64_t even = (plan.buckets[b].numel + ranks - 1) / ranks;
    const std::int64_t shard = shards.shard_numels.emplace_back((even + step - 1) / step * step);
    for (const BucketPlan::Slice& slice : plan.buckets[b].slices) {
      const std::int64_t end = slice.offset + slice.numel;
      for (std::int64_t rank = slice.offset / shard; rank * shard < end; ++rank) {
        const std::int64_t from = std::max(slice.offset, rank * shard),
                           to = std::min(end, (rank + 1) * shard);
        shards.pieces[static_cast<std::size_t>(rank)].push_back({.parameter = slice.parameter,
                                                                 .begin = from - slice.offset,
                                                                 .numel = to - from,
                                                                 .bucket = b,
                                                                 .offset = from - rank * shard});
      }
    }
  }
  const auto empty = std::find_if(shards.pieces.begin(), shards.pieces.end(),
                                  [](const auto& pieces) { return pieces.empty(); });
  check(empty == shards.pieces.end(),
        "sharding: the model is too small for {} ranks: rank {} would get no element; use fewer ranks", ranks,
        empty - shards.pieces.begin());
  return shards;
}

std::int64_t ShardPlan::max_numel() const {
  std::int64_t maximum = 0;
  for (const std::int64_t shard : shard_numels) maximum = std::max(maximum, shard * ranks);
  return maximum;
}

}  // namespace convoy::dist

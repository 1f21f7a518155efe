#include "comm/shard_plan.h"

#include <algorithm>

#include "kernels/runtime/check.h"

namespace convoy {

ShardPlan ShardPlan::of(const BucketPlan& plan, int ranks, std::size_t element_bytes) {
  check(ranks >= 1, "shards: {} ranks, expected 1 or more", ranks);
  check(element_bytes > 0 && kAlignment % element_bytes == 0, "shards: elements of {} bytes", element_bytes);
  const auto step = static_cast<std::int64_t>(kAlignment / element_bytes);
  ShardPlan shards{.ranks = ranks, .parts = {}, .pieces = {}};
  shards.pieces.resize(static_cast<std::size_t>(ranks));
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const std::int64_t even = (plan.buckets[b].numel + ranks - 1) / ranks;
    const std::int64_t part = shards.parts.emplace_back((even + step - 1) / step * step);
    for (const BucketPlan::Slice& slice : plan.buckets[b].slices) {
      const std::int64_t end = slice.offset + slice.numel;
      for (std::int64_t rank = slice.offset / part; rank * part < end; ++rank) {
        const std::int64_t from = std::max(slice.offset, rank * part), to = std::min(end, (rank + 1) * part);
        shards.pieces[static_cast<std::size_t>(rank)].push_back({.parameter = slice.parameter,
                                                                 .begin = from - slice.offset,
                                                                 .numel = to - from,
                                                                 .bucket = b,
                                                                 .offset = from - rank * part});
      }
    }
  }
  const auto empty = std::find_if(shards.pieces.begin(), shards.pieces.end(),
                                  [](const auto& pieces) { return pieces.empty(); });
  check(empty == shards.pieces.end(),
        "--zero: found {} ranks and a model that is too small to give rank {} a part of it, expected fewer "
        "ranks",
        ranks, empty - shards.pieces.begin());
  return shards;
}

std::int64_t ShardPlan::largest() const {
  std::int64_t most = 0;
  for (const std::int64_t part : parts) most = std::max(most, part * ranks);
  return most;
}

}  // namespace convoy

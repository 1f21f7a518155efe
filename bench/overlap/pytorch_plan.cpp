#include "bench/overlap/pytorch_plan.h"

#include <algorithm>
#include <limits>

namespace convoy {
namespace {

constexpr std::size_t kFirstBytes = std::size_t{1} << 20;
constexpr std::size_t kOtherBytes = std::size_t{25} << 20;

}  // namespace

dist::BucketPlan pytorch_plan(std::span<const std::int64_t> numels, std::span<const double> ready_ms,
                              const dist::BucketLimits& limits) {
  dist::BucketLimits one_for_all = limits;
  one_for_all.bucket_bytes = one_for_all.last_bytes = std::numeric_limits<std::size_t>::max();
  const dist::BucketPlan::Bucket all = dist::BucketPlan::by_ready_times(numels, ready_ms, one_for_all)
                                           .buckets.front();  // all slices in the order of the plan

  dist::BucketPlan plan;
  std::size_t held = 0, limit = 0;  // of the open bucket; initially none is open
  for (std::size_t i = 0; i < all.slices.size(); ++i) {
    if (held >= limit) {
      limit = plan.buckets.empty() ? kFirstBytes : kOtherBytes;
      held = 0;
      plan.buckets.emplace_back();
    }
    dist::BucketPlan::Bucket& bucket = plan.buckets.back();
    const dist::BucketPlan::Slice& slice = all.slices[i];
    const std::int64_t end = i + 1 < all.slices.size() ? all.slices[i + 1].offset : all.numel;
    bucket.slices.push_back({.parameter = slice.parameter, .offset = bucket.numel, .numel = slice.numel});
    bucket.numel += end - slice.offset;  // including the gap after it
    held += static_cast<std::size_t>(slice.numel) * limits.element_bytes;
  }
  return plan;
}

}  // namespace convoy

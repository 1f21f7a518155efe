// The rule that PyTorch groups gradients by, to hold plans of our own against.
#pragma once

#include <cstdint>
#include <span>

#include "comm/bucket_plan.h"

namespace convoy {

/// The buckets of PyTorch's DistributedDataParallel, by its documented rule: parameters in the order in which
/// their gradients were ready; a bucket is closed once it holds 1 MiB (the first) or 25 MiB, and the last is
/// what remains. DDP makes them so after its first step; that one's order is the reverse of the registration,
/// which equal times give here. Times and errors are those of BucketPlan::by_ready_times; of the limits, how
/// slices are laid out counts.
BucketPlan pytorch_plan(std::span<const std::int64_t> numels, std::span<const double> ready_ms,
                        const BucketLimits& limits = {});

}  // namespace convoy

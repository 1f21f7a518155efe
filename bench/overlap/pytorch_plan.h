// PyTorch's rule for grouping gradients into buckets, as a baseline for Convoy's plans.
#pragma once

#include <cstdint>
#include <span>

#include "convoy/comm/parallel/bucket_plan.h"

namespace convoy {

/// Returns the buckets of PyTorch's DistributedDataParallel (DDP) by its documented rule. Gradients are
/// ordered by their ready times. A bucket is closed once it holds 1 MiB (the first) or 25 MiB (the others);
/// the last bucket is the remainder. DDP uses these buckets after its first step. Its order in the first step
/// is the reverse of the registration, which this function returns for equal times. Times and errors are
/// those of BucketPlan::by_ready_times(). Of `limits`, only the layout of slices is used.
dist::BucketPlan pytorch_plan(std::span<const std::int64_t> numels, std::span<const double> ready_ms,
                              const dist::BucketLimits& limits = {});

}  // namespace convoy

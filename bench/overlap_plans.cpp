#include "bench/overlap_plans.h"

#include <limits>

#include "comm/gradient_synchronizer.h"
#include "comm/pytorch_plan.h"

namespace convoy::bench {

std::vector<NamedPlan> compared_plans(const StepRecord& record) {
  const std::vector<std::int64_t> numels = record.numels();
  const std::vector<double> ready = record.ready_ms();
  const BucketLimits limits = BucketLimits::of(GradientSynchronizerOptions{}.bucket_mb, record.dtype);
  const auto filled_to = [&](std::size_t bytes) {
    BucketLimits same = limits;
    same.bucket_bytes = same.last_bytes = bytes;
    return BucketPlan::by_ready_times(numels, ready, same);
  };
  return {{kOurs, BucketPlan::by_ready_times(numels, ready, limits)},
          {kPytorchs, pytorch_plan(numels, ready, limits)},
          {"one bucket", filled_to(std::numeric_limits<std::size_t>::max())},
          {"one a parameter", filled_to(1)}};
}

}  // namespace convoy::bench

#include "bench/overlap/plans.h"

#include <limits>

#include "bench/overlap/pytorch_plan.h"
#include "convoy/comm/parallel/gradient_synchronizer.h"

namespace convoy::bench {

std::vector<NamedPlan> compared_plans(const StepRecord& record) {
  const std::vector<std::int64_t> numels = record.numels();
  const std::vector<double> ready = record.ready_ms();
  const dist::BucketLimits limits =
      dist::BucketLimits::of(dist::GradientSynchronizerOptions{}.bucket_mb, record.dtype);
  const auto filled_to = [&](std::size_t bytes) {
    dist::BucketLimits equal = limits;
    equal.bucket_bytes = equal.last_bytes = bytes;
    return dist::BucketPlan::by_ready_times(numels, ready, equal);
  };
  return {{kConvoyPlan, dist::BucketPlan::by_ready_times(numels, ready, limits)},
          {kPytorchPlan, pytorch_plan(numels, ready, limits)},
          {"one bucket", filled_to(std::numeric_limits<std::size_t>::max())},
          {"one per parameter", filled_to(1)}};
}

}  // namespace convoy::bench

// The bucket plans that convoy-bench-overlap compares.
#pragma once

#include <string>
#include <vector>

#include "bench/overlap_record.h"
#include "comm/bucket_plan.h"

namespace convoy::bench {

struct NamedPlan {
  std::string name;
  BucketPlan plan;
};

inline constexpr const char* kOurs = "convoy";
inline constexpr const char* kPytorchs = "PyTorch's rule";

/// All take gradients in the order in which they were recorded to be ready: ours, as a training makes it
/// after its second update; PyTorch's; one bucket for all; and one for each parameter.
std::vector<NamedPlan> compared_plans(const StepRecord& record);

}  // namespace convoy::bench

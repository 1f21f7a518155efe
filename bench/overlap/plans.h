// The bucket plans that convoy-bench-overlap compares.
#pragma once

#include <string>
#include <vector>

#include "bench/overlap/record.h"
#include "convoy/comm/parallel/bucket_plan.h"

namespace convoy::bench {

/// A bucket plan and its name in tables.
struct NamedPlan {
  std::string name;
  dist::BucketPlan plan;
};

inline constexpr const char* kConvoyPlan = "convoy";
inline constexpr const char* kPytorchPlan = "PyTorch's rule";

/// Returns four plans that order gradients by their recorded ready times: Convoy's plan, as training builds
/// it after its second step; PyTorch's; one bucket for all gradients; and one bucket per parameter.
std::vector<NamedPlan> compared_plans(const StepRecord& record);

}  // namespace convoy::bench

// Comparison of ops with PyTorch's results for NaN, infinite, extreme and offset inputs and for empty shapes
// (tests/reference/samples.py), on any device.
#pragma once

#include <string>
#include <vector>

#include "convoy/kernels/runtime/device_context.h"

namespace convoy::testing {

/// Returns the names of the ops that have samples.
std::vector<std::string> sampled_ops();

/// Computes every sample of `op` and its gradients in f32 and f64, and expects PyTorch's results. Infinities and
/// NaN must be in the same places and infinities have the same sign. Another element may differ by 16 units in
/// the last place, or in an op that sums n terms by 16 eps sqrt(n) of the largest element. Each difference that is
/// permitted, and each refusal, is in a table in op_samples.cpp with its reason; one that does not occur is an error.
void expect_samples_agree(const std::string& op, const DeviceContext& device);

}  // namespace convoy::testing

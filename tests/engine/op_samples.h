// Comparison of ops with PyTorch's results, on any device: for NaN, infinite, extreme and offset inputs and empty shapes
// (tests/reference/samples.py), and for PyTorch's own sample inputs (tests/reference/op_db.py).
#pragma once

#include <string>
#include <vector>

#include "convoy/kernels/runtime/device_context.h"

namespace convoy::testing {

/// Returns the names of the ops that have samples of the first kind.
std::vector<std::string> sampled_ops();

/// Computes every sample of `op` and its gradients in f32 and f64, and expects PyTorch's results. Infinities and
/// NaN must be in the same places and infinities have the same sign. Another element may differ by 16 units in
/// the last place, or in an op that sums n terms by 16 eps sqrt(n) of the largest element. Each difference that is
/// permitted, and each refusal, is in a table in op_samples.cpp with its reason; one that does not occur is an error.
void expect_samples_agree(const std::string& op, const DeviceContext& device);

/// Does the same for all samples of the file `path`, which tests/reference/op_db.py has written. Expects that no other
/// argument is refused than those in the table, and prints the number of samples that agree, by family.
void expect_op_db_agrees(const std::string& path, const DeviceContext& device);

}  // namespace convoy::testing

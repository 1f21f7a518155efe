// Normalization within samples. Unlike batch norm, it has no running statistics, and training and inference
// are the same. For threads and the meta device, see ops.h.
#pragma once

#include "convoy/engine/autograd/variable.h"

namespace convoy {

/// Returns weight (x - mean) / sqrt(var + epsilon) + bias, with mean and biased variance over the last axes
/// of x (Ba et al., arXiv:1607.06450). `normalized` has the sizes of these axes, and is the shape of weight
/// and bias, either of which may be undefined. They are f32 if x is f16 or bf16, else of the type of x.
/// Throws UsageError if `normalized` is empty or not the end of the shape of x.
Variable layer_norm(const Variable& x, const Shape& normalized, const Variable& weight = {},
                    const Variable& bias = {}, double epsilon = 1e-5);

/// Returns weight (x - mean) / sqrt(var + epsilon) + bias for x [N, …, C] (Wu and He, arXiv:1803.08494).
/// Divides the channels into `groups` groups of adjacent ones; mean and biased variance are over all elements
/// of a group in one sample. weight and bias are [C], or undefined. They are f32 if x is f16 or bf16, else of
/// the type of x. Throws UsageError unless `groups` is positive and divides C.
Variable group_norm(const Variable& x, int groups, const Variable& weight = {}, const Variable& bias = {},
                    double epsilon = 1e-5);

}  // namespace convoy

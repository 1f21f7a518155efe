// The second pass of batch norm's backward pass on its own, for a kernel that has computed the first pass.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

/// Enqueues the gradient of batch norm's input,
///   dx = direct g + (slope (x - mean) + constant),
/// or adds it to dx. g is the gradient of batch norm's result, after the mask of a ReLU. g, x and dx are
/// [rows, C] or [N, H, W, C], of one type. mean is [C], and factors is [3, C]: direct, slope and constant, as
/// cuda::GradientRules computes them. Both have the type in which a GPU computes for x. dx may be the array
/// of g.
void batch_norm_data_gradient(CudaStream& stream, ConstView g, ConstView x, ConstView mean, ConstView factors,
                              GradView dx);

}  // namespace convoy::kernels

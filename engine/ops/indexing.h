// Ops that choose elements by indices, which are i32 tensors and have no gradient. Indices count from 0. An
// index out of range throws UsageError on the CPU. A GPU does not check, because that would stall every step:
// such an index gives NaN (0 in an integer type) there, and no gradient. Gradients have the same bits in
// every run, also if indices occur repeatedly. A negative axis counts from the last one. For threads and the
// meta device, see ops.h.
#pragma once

#include "convoy/engine/autograd/variable.h"

namespace convoy {

/// Returns y of the shape of `indices`, with y[i] = x[j], where j = i except that j[axis] = indices[i], as
/// torch.gather. Throws UsageError unless both have equal ranks, and `indices` is at most as large as x on
/// the other axes. If x requires a gradient, it must have less than 2^32 - 1 elements.
Variable gather(const Variable& x, const Tensor& indices, int axis);
/// Returns the slices of x at indices [K] of an axis, which has size K in the result: for axis 0, rows of x.
/// Throws UsageError for indices of another rank.
Variable index_select(const Variable& x, int axis, const Tensor& indices);
/// Returns the rows of weight [V, D] at indices […], which is […, D]. Throws UsageError for a weight of
/// another rank.
Variable embedding(const Variable& weight, const Tensor& indices);

/// Returns the positions of the k largest elements of x [N] in ascending order, i32 [k], which have no
/// gradient: the sorted indices of torch.topk. Of equal elements the first ones are chosen, and NaN is larger
/// than any number. Throws UsageError for an x of another rank, or if k is not from 0 to N.
Tensor top_k(const Variable& x, std::int64_t k);

}  // namespace convoy

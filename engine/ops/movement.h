// Ops that rearrange elements: they compute nothing, and their gradients rearrange back. Tensors are
// contiguous, so all of them but reshape, squeeze and unsqueeze copy. An axis counts from the last one if it
// is negative. An axis, a size or a type that does not fit throws UsageError: reshape, squeeze and unsqueeze
// take every type, the others floating-point types. For threads and the meta device, see ops.h.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "convoy/engine/autograd/variable.h"

namespace convoy {

/// Returns the elements of x, in the same order, as a variable of another shape with as many elements.
Variable reshape(const Variable& x, const Shape& shape);
/// Removes an axis of size 1.
Variable squeeze(const Variable& x, int axis);
/// Adds an axis of size 1 in front of `axis`, which is -1 for a new last axis.
Variable unsqueeze(const Variable& x, int axis);
/// Flattens [N, H, W, C] to [N, C H W] in PyTorch's order, so that a Linear after it has PyTorch's weights.
/// Flattens any other [N, …] to [N, rest].
Variable flatten(const Variable& x);

/// Reorders the axes: axis i of the result is axis axes[i] of x. `axes` has each axis of x once.
Variable permute(const Variable& x, std::initializer_list<int> axes);
/// Does the same for a span of axes.
Variable permute(const Variable& x, std::span<const int> axes);
/// Swaps two axes.
Variable transpose(const Variable& x, int axis_a, int axis_b);

/// Repeats x to a shape by NumPy's rules, as the ops of arithmetic.h do.
Variable broadcast_to(const Variable& x, const Shape& shape);
/// Sums x to a shape that could be broadcast to that of x: the gradient of broadcast_to().
Variable sum_to(const Variable& x, const Shape& shape);

/// Returns elements begin, begin + step, … below `end` of one axis. Negative positions count from the end of
/// the axis, as in Python. Throws UsageError unless 0 <= begin <= end <= size, after that, and step >= 1.
Variable slice(const Variable& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1);
/// Splits x along an axis into `parts` variables of equal size. Throws UsageError if `parts` does not divide
/// the size.
std::vector<Variable> chunk(const Variable& x, int parts, int axis);
/// Joins variables of one element type, and of one shape but for `axis`, along that axis.
Variable concat(const std::vector<Variable>& inputs, int axis);
/// Joins variables of one shape along a new axis.
Variable stack(const std::vector<Variable>& inputs, int axis);

/// The number of elements that pad() adds in front of and behind one axis.
struct Padding {
  std::int64_t before = 0;  // at least 0
  std::int64_t after = 0;   // at least 0
};
/// Adds elements of `value` around x. `padding` has one entry per axis, in the order of the axes.
Variable pad(const Variable& x, const std::vector<Padding>& padding, double value = 0);

}  // namespace convoy

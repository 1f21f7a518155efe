// Reductions over all elements or over some axes, and softmax. An axis counts from the last one if it is
// negative; an axis that does not exist or is named twice throws UsageError, and so does an integer type.
// For threads and the meta device, see ops.h.
#pragma once

#include <vector>

#include "convoy/engine/autograd/variable.h"

namespace convoy {

/// Returns the sum of all elements, [1].
Variable sum(const Variable& x);
/// Returns the mean of all elements, [1]. Throws UsageError if there are none.
Variable mean(const Variable& x);

/// Returns the sum over `axes`, which are removed, or kept with size 1 if `keep_axes`.
Variable sum(const Variable& x, const std::vector<int>& axes, bool keep_axes = false);
/// Returns the mean over `axes`. Throws UsageError if it has no terms.
Variable mean(const Variable& x, const std::vector<int>& axes, bool keep_axes = false);
/// Returns the mean squared distance from the mean over `axes`. With `unbiased`, divides by one less than the
/// number of terms. Throws UsageError if that is 0.
Variable variance(const Variable& x, const std::vector<int>& axes, bool keep_axes = false,
                  bool unbiased = true);

/// Returns the maximum over one axis. The gradient goes to the first maximum. NaN is larger than any number.
/// Throws UsageError if the axis has size 0.
Variable max(const Variable& x, int axis, bool keep_axis = false);
/// Returns the minimum over one axis, as max() does.
Variable min(const Variable& x, int axis, bool keep_axis = false);
/// Returns the position of the first maximum along one axis, i32, which has no gradient.
Tensor argmax(const Variable& x, int axis, bool keep_axis = false);

/// Returns exp(x) divided by its sum along an axis.
Variable softmax(const Variable& x, int axis = -1);
/// Returns the logarithm of softmax(), without its loss of precision where that is close to 0.
Variable log_softmax(const Variable& x, int axis = -1);

}  // namespace convoy

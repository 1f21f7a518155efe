// Argument checks shared by the ops: each throws UsageError. Private to engine/ops.
#pragma once

#include <string_view>

#include "convoy/engine/autograd/variable.h"
#include "convoy/kernels/base/check.h"

namespace convoy::detail {

inline void check_floating(std::string_view op, const Variable& x) {
  check(is_floating(x.dtype()), "{}: input is {} {}, expected floating point", op, to_string(x.dtype()),
        x.shape().text());
}

inline void check_rank(std::string_view op, std::string_view what, const Shape& shape, int rank) {
  check(shape.rank() == rank, "{}: {} {} has {} dimensions, expected {}", op, what, shape.text(),
        shape.rank(), rank);
}

/// Returns whether an op may combine tensors on these devices: equal ones, or any device with the meta
/// device.
inline bool can_combine(Device a, Device b) {
  return a == b || a.kind == DeviceKind::meta || b.kind == DeviceKind::meta;
}

/// Returns the context of an op's result: the meta device if an input is there, else that of the first input.
/// Inputs are Variables or Tensors, and all but the first may be undefined.
template <class First, class... Others>
const DeviceContext& result_context(const First& first, const Others&... others) {
  const DeviceContext* result = &first.context();
  const auto visit = [&](const auto& input) {
    if (input.defined() && input.context().kind() == DeviceKind::meta) result = &input.context();
  };
  (visit(others), ...);
  return *result;
}

/// Checks that two arguments of an op have the same element type, and devices that it may combine.
inline void check_alike(std::string_view op, const Variable& x, const Variable& y) {
  check(x.dtype() == y.dtype(), "{}: element types of {} {} and {} {} differ", op, to_string(x.dtype()),
        x.shape().text(), to_string(y.dtype()), y.shape().text());
  check(can_combine(x.device(), y.device()), "{}: one input is on {}, the other on {}", op,
        x.context().name(), y.context().name());
}

inline void check_same_shape(std::string_view op, const Variable& x, const Variable& y) {
  check_alike(op, x, y);
  check(x.shape() == y.shape(), "{}: shapes {} and {} differ", op, x.shape().text(), y.shape().text());
}

/// Checks a bias: [size], with the element type of x and a device like that of x.
inline void check_vector(std::string_view op, std::string_view what, const Variable& vector,
                         const Variable& x, std::int64_t size) {
  check_alike(op, x, vector);
  check(vector.shape() == Shape{size}, "{}: {} {}, expected [{}]", op, what, vector.shape().text(), size);
}

/// Checks that `indices` (labels or sample ids) are i32 [N] on a device like that of x, which is [N, …].
inline void check_indices(std::string_view op, std::string_view what, const Tensor& indices,
                          const Variable& x) {
  check(indices.defined() && indices.dtype() == DType::i32 && indices.shape() == Shape{x.shape()[0]},
        "{}: {} {} {}, expected i32 [{}]", op, what,
        indices.defined() ? to_string(indices.dtype()) : "undefined",
        indices.defined() ? indices.shape().text() : "", x.shape()[0]);
  check(can_combine(indices.device(), x.device()), "{}: {} are on {}, expected {} as the input", op, what,
        indices.context().name(), x.context().name());
}

}  // namespace convoy::detail

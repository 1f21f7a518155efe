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

/// Returns whether an op may combine tensors on these devices: equal ones, or any device with the meta device.
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

/// Checks the arguments of a batch norm over `channels` channels: each is [channels] on a device like that of
/// x, in the type that x is computed in.
inline void check_batch_norm(const Variable& x, std::int64_t channels, const Tensor& gamma,
                             const Tensor& beta, const Tensor& running_mean, const Tensor& running_var) {
  const DType expected = is_half(x.dtype()) ? DType::f32 : x.dtype();
  const auto check_one = [&](std::string_view what, const Tensor& values) {
    check(values.dtype() == expected, "batch_norm: {} is {}, expected {} for an input of {}", what,
          to_string(values.dtype()), to_string(expected), to_string(x.dtype()));
    check(can_combine(values.device(), x.device()), "batch_norm: {} is on {}, expected {} as the input", what,
          values.context().name(), x.context().name());
    check(values.shape() == Shape{channels}, "batch_norm: {} {}, expected [{}]", what, values.shape().text(),
          channels);
  };
  check_one("scale", gamma);
  check_one("shift", beta);
  check_one("running mean", running_mean);
  check_one("running variance", running_var);
}

/// Checks that the input [N, …, C] of a batch norm in training has a variance: more than one value per
/// channel, or none.
inline void check_batch(const Shape& x) {
  check(x[-1] == 0 || x.numel() != x[-1],
        "batch_norm: input {} has one value per channel, expected more; train with a larger batch", x.text());
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

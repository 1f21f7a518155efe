// The checks that every op begins with. Private to engine/ops.
#pragma once

#include <string_view>

#include "engine/autograd/variable.h"
#include "kernels/runtime/check.h"

namespace convoy::detail {

inline void check_floating(std::string_view op, const Variable& x) {
  check(is_floating(x.dtype()), "{}: input {} {}, expected floating point", op, name_of(x.dtype()),
        x.shape().text());
}

inline void check_rank(std::string_view op, std::string_view what, const Shape& shape, int rank) {
  check(shape.rank() == rank, "{}: {} {} has {} dimensions, expected {}", op, what, shape.text(),
        shape.rank(), rank);
}

/// Same element type and device: what two arguments of an op must share.
inline void check_alike(std::string_view op, const Variable& x, const Variable& y) {
  check(x.dtype() == y.dtype(), "{}: {} {} and {} {} differ in type", op, name_of(x.dtype()),
        x.shape().text(), name_of(y.dtype()), y.shape().text());
  check(x.device() == y.device(), "{}: one input is on {}, the other on {}", op, x.device().name(),
        y.device().name());
}

inline void check_same_shape(std::string_view op, const Variable& x, const Variable& y) {
  check_alike(op, x, y);
  check(x.shape() == y.shape(), "{}: {} and {} differ", op, x.shape().text(), y.shape().text());
}

/// A bias, scale or shift: [size], alike x; may be undefined where `optional`.
inline void check_vector(std::string_view op, std::string_view what, const Variable& vector,
                         const Variable& x, std::int64_t size) {
  check_alike(op, x, vector);
  check(vector.shape() == Shape{size}, "{}: {} {}, expected [{}]", op, what, vector.shape().text(), size);
}

/// i32 [N] beside x [N, …]: labels, sample ids.
inline void check_indices(std::string_view op, std::string_view what, const Tensor& indices,
                          const Variable& x) {
  check(indices.defined() && indices.dtype() == DType::i32 && indices.shape() == Shape{x.shape()[0]},
        "{}: {} {} {}, expected i32 [{}]", op, what,
        indices.defined() ? name_of(indices.dtype()) : "undefined",
        indices.defined() ? indices.shape().text() : "", x.shape()[0]);
  check(indices.device() == x.device(), "{}: {} on {}, input on {}", op, what, indices.device().name(),
        x.device().name());
}

}  // namespace convoy::detail

// Deterministic rank-order sums, shared by all CPU transports.
#pragma once

#include <span>

#include "convoy/kernels/base/checksum.h"
#include "convoy/kernels/base/view.h"

namespace convoy::dist {

/// Returns the accumulator type of sums of `dtype`: f32 for f16 and bf16, otherwise `dtype` itself.
constexpr DType sum_type(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

/// One summand.
struct SumPart {
  ConstView view;                // its elements
  Checksum* checksum = nullptr;  // appends them, as the sum reads them; null: not needed
};

/// Computes out = parts[0] + parts[1] + …, in this order. f16 and bf16 are accumulated in f32 and rounded
/// once; i32 wraps around. There is at least one part. All parts have the same type, and as many elements as
/// `out`. `of_out` appends the elements of `out` unless it is null. `copy`, which needs `of_out`, gets the
/// same elements unless it has no memory; it must not overlap anything else.
///
/// `out` has the type of the parts, or, for sums in several stages, their accumulator type, or a type whose
/// accumulator type is that of the parts. Throws UsageError for other types. `out` may be identical to one of
/// the parts if the types are equal. It must not overlap a part in any other way.
void sum_in_order(std::span<const SumPart> parts, View out, Checksum* of_out = nullptr, View copy = {});

}  // namespace convoy::dist

// The sum of every rank's part: what communicators of the CPU have in common.
#pragma once

#include <span>

#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

/// What a sum of this type is kept in until it is complete: f32 for f16 and bf16, else the type itself.
constexpr DType sum_type(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

/// out = parts[0] + parts[1] + …, added in this order; f16 and bf16 in f32, rounded once; i32 wraps around.
/// All of one type and out's number of elements, at least one. out is of that type, too, and may then be one
/// of the parts, but no shifted one; or, where a sum is made in steps: of the parts' sum_type, or of a type
/// whose sum_type the parts have.
void sum_in_order(const CpuStream& stream, std::span<const ConstView> parts, View out);

}  // namespace convoy

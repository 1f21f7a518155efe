// The sum of every rank's part: what communicators of the CPU have in common.
#pragma once

#include <span>

#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

/// out = parts[0] + parts[1] + …, added in this order; f16 and bf16 in f32, rounded once; i32 wraps around.
/// All of out's type and number of elements, at least one. out may be one of the parts, but no shifted one.
void sum_in_order(const CpuStream& stream, std::span<const ConstView> parts, View out);

}  // namespace convoy

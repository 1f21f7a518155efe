// Element-wise addition for the emulated NCCL.
#pragma once

#include <nccl.h>

#include <cstddef>

namespace convoy::emulator {

/// Returns whether elements of this type can be added.
bool can_add(ncclDataType_t type);
/// Computes to[i] += from[i], rounded to the type.
void add_elements(ncclDataType_t type, void* to, const void* from, std::size_t count);

}  // namespace convoy::emulator

// What program.h calls: static and dynamic shared memory, and the begin of a program.
#pragma once

#include <array>
#include <cstddef>

namespace convoy::emulator {

/// What cuemu knows of an array: the name, the size of an element and up to three extents, as declared.
struct SharedArray {
  const char* name;
  std::size_t element_bytes;
  std::array<std::size_t, 3> extents{};
  std::size_t dimensions = 0;
};
/// Returns the block's array that `key` identifies. It is uninitialized.
void* static_shared(const void* key, std::size_t bytes, std::size_t alignment, const SharedArray& array);
/// Returns the dynamic shared memory of any block.
void* dynamic_shared();
/// Names it, for messages.
void name_dynamic_shared(const SharedArray& array);

/// Makes this process an ordinary CUDA program: one GPU unless CONVOY_EMULATED_GPUS says otherwise, a null
/// stream, and a report at its end.
bool begin_program(const void* device_variables_begin, const void* device_variables_end);

}  // namespace convoy::emulator

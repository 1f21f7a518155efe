// Vectors of floats as the compiler knows them: one register of what the processor has, or as many smaller
// ones as it takes.
#pragma once

#include <cstring>

namespace convoy::simd {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kRegisters = 32;
#else
constexpr int kLanes = 8;
constexpr int kRegisters = 16;
#endif

using Vec = float __attribute__((vector_size(kLanes * sizeof(float))));

inline __attribute__((always_inline)) void load(const float* from, Vec& to) {
  std::memcpy(&to, from, sizeof to);
}
inline __attribute__((always_inline)) void store(float* to, const Vec& from) {
  std::memcpy(to, &from, sizeof from);
}

}  // namespace convoy::simd

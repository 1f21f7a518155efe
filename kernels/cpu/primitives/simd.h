// Vector types of the compiler's vector extensions. A vector is one register of the target processor, or
// several smaller registers.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "convoy/kernels/base/dtype.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace convoy::kernels::simd {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kRegisters = 32;
#else
constexpr int kLanes = 8;
constexpr int kRegisters = 16;
#endif

/// The size of a vector register in bytes. The compiler takes a comparison of wider vectors apart lane by
/// lane.
#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif

/// A vector of kLanes floats.
using Vec = float __attribute__((vector_size(kLanes * sizeof(float))));

/// Load and store a vector of f32 at any address.
inline __attribute__((always_inline)) void load(const float* from, Vec& to) {
  std::memcpy(&to, from, sizeof to);
}
inline __attribute__((always_inline)) void store(float* to, const Vec& from) {
  std::memcpy(to, &from, sizeof from);
}

using Words = std::uint32_t __attribute__((vector_size(kLanes * sizeof(float))));
using HalfWords = std::uint16_t __attribute__((vector_size(kLanes * sizeof(bfloat16))));

/// Loads bf16 as f32, and stores f32 as bf16 with the rounding of kernels/base/dtype.h.
inline __attribute__((always_inline)) void load(const bfloat16* from, Vec& to) {
  HalfWords bits;
  std::memcpy(&bits, from, sizeof bits);
  to = std::bit_cast<Vec>(__builtin_convertvector(bits, Words) << 16);
}
inline __attribute__((always_inline)) void store(bfloat16* to, const Vec& from) {
  const Words word = std::bit_cast<Words>(from);
  const Words rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  const auto is_nan = (word & 0x7fffffffu) > 0x7f800000u;
  const HalfWords bits = __builtin_convertvector(is_nan ? (word >> 16) | 0x40u : rounded, HalfWords);
  std::memcpy(&to->bits, &bits, sizeof bits);
}

/// Vectors of 64-bit integers.
constexpr int kWideLanes = 8;
using Wide = std::uint64_t __attribute__((vector_size(kWideLanes * sizeof(std::uint64_t))));

/// Multiplies the lower 32 bits of each lane by `factor` to a 64-bit result. Ignores the upper 32 bits of the
/// lanes. If kHasLowerMultiply, this is one instruction, which the compiler does not generate from a 64-bit
/// multiplication.
#if defined(__AVX512F__)
constexpr bool kHasLowerMultiply = true;
inline void multiply_lower(Wide& x, std::uint32_t factor) {
  x = reinterpret_cast<Wide>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(x), _mm512_set1_epi64(factor)));
}
#else
constexpr bool kHasLowerMultiply = false;
inline void multiply_lower(Wide& x, std::uint32_t factor) { x = (x & 0xffffffffU) * factor; }
#endif

}  // namespace convoy::kernels::simd

// Loads and stores of array elements of any type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "convoy/kernels/base/dtype.h"

namespace convoy::emulator {

enum class Element : std::uint8_t { f16, bf16, f32, f64 };

inline std::size_t size_of(Element type) { return type == Element::f64 ? 8 : type == Element::f32 ? 4 : 2; }

/// Returns element i of an array, converted exactly. Sum must be double if the array is.
template <class Sum>
Sum load(Element type, const void* array, std::int64_t i) {
  switch (type) {
    case Element::f16: return static_cast<float>(static_cast<const float16*>(array)[i]);
    case Element::bf16: return static_cast<float>(static_cast<const bfloat16*>(array)[i]);
    case Element::f32: return static_cast<const float*>(array)[i];
    case Element::f64: break;
  }
  return static_cast<Sum>(static_cast<const double*>(array)[i]);
}

/// Stores `value` as element i, rounded to nearest even.
template <class Sum>
void store(Element type, void* array, std::int64_t i, Sum value) {
  switch (type) {
    case Element::f16: static_cast<float16*>(array)[i] = float16(static_cast<float>(value)); return;
    case Element::bf16: static_cast<bfloat16*>(array)[i] = bfloat16(static_cast<float>(value)); return;
    case Element::f32: static_cast<float*>(array)[i] = static_cast<float>(value); return;
    case Element::f64: static_cast<double*>(array)[i] = static_cast<double>(value); return;
  }
}

/// Rounds to tf32: ten bits of mantissa, ties away from zero.
inline float rounded_to_tf32(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  constexpr std::uint32_t kExponent = 0x7f800000, kHalf = 0x1000, kDropped = 0x1fff;
  if ((bits & kExponent) == kExponent) return value;  // infinite or NaN
  bits = (bits + kHalf) & ~kDropped;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

}  // namespace convoy::emulator

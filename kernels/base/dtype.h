// Element types and their dispatch to C++ types. f16 and bf16 are storage types defined here, because g++ 12
// has no arithmetic for them. Every kernel widens them to float, computes, and rounds once. On a GPU the
// conversions are hardware instructions. They give the same bits, except that they produce only one NaN. The
// functions are pure, so all are thread-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "convoy/kernels/base/error.h"

#if defined(__CUDACC__)
#define CONVOY_HOST_DEVICE __host__ __device__
#else
#define CONVOY_HOST_DEVICE
#endif

namespace convoy {

/// An element type.
enum class DType : std::uint8_t {
  f64,   // double
  f32,   // float
  f16,   // float16, stored in 2 bytes
  bf16,  // bfloat16, stored in 2 bytes
  i32,   // std::int32_t: labels and counters
  u8,    // std::uint8_t: pixels
};

/// Returns the size of one element in bytes.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 8;
    case DType::f32: return 4;
    case DType::i32: return 4;
    case DType::f16: return 2;
    case DType::bf16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

/// Returns the name of the type: "f32".
constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f64: return "f64";
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::u8: return "u8";
  }
  return "?";
}

/// Returns whether the type is a floating-point type.
constexpr bool is_floating(DType dtype) { return dtype != DType::i32 && dtype != DType::u8; }
/// Returns whether the type is a 16-bit floating-point type.
constexpr bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

/// A bfloat16 number: the upper 16 bits of a float. Conversion rounds to nearest even; NaN stays NaN.
struct bfloat16 {
  std::uint16_t bits = 0;  // the sign in the highest bit

  bfloat16() = default;
  /// Rounds `value`.
  CONVOY_HOST_DEVICE explicit constexpr bfloat16(float value) {
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const std::uint32_t word = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = is_nan ? static_cast<std::uint16_t>((word >> 16) | 0x40u)
                  : static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
#endif
  }
  /// Returns the value, which is exact.
  CONVOY_HOST_DEVICE explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

/// An IEEE binary16 number: 1 sign, 5 exponent and 10 mantissa bits. Conversion rounds to nearest even and
/// keeps subnormals.
struct float16 {
  std::uint16_t bits = 0;  // the sign in the highest bit

  float16() = default;
  /// Rounds `value`.
  CONVOY_HOST_DEVICE explicit constexpr float16(float value) {
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const std::uint32_t word = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((word >> 16) & 0x8000u);
    const std::uint32_t magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {  // NaN
      bits = static_cast<std::uint16_t>(sign | 0x7e00u);
    } else if (magnitude >= 0x477ff000u) {  // rounds to 2^16 or beyond: infinity
      bits = static_cast<std::uint16_t>(sign | 0x7c00u);
    } else if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 aligns and rounds the subnormal mantissa
      const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
      bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u));
    } else {
      const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
      bits = static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
    }
#endif
  }
  /// Returns the value, which is exact.
  CONVOY_HOST_DEVICE explicit constexpr operator float() const {
#if defined(__CUDA_ARCH__)
    float value = 0;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u)  // infinity or NaN
      return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    if (magnitude < 0x400u) {  // zero or subnormal: mantissa times 2^-24
      const float value = static_cast<float>(magnitude) * 0x1p-24f;
      return sign != 0 ? -value : value;
    }
    return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
#endif
  }
};

/// The DType of a C++ type, for dtype_of.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<bfloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
/// The DType of a C++ type. Example: dtype_of<float> == DType::f32.
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

/// The element types that code accepts, for dispatch().
template <class... Ts>
struct ElementTypes {
  const char* where;  // for error messages: "the CPU", "a GPU"
};
/// All element types.
inline constexpr ElementTypes<double, float, float16, bfloat16, std::int32_t, std::uint8_t> kAllTypes{
    "Convoy"};

/// Calls f with a zero of the C++ type of `dtype` and returns its result. Throws UsageError, which names the
/// device and the types that it accepts, if `dtype` is not one of Ts. Example:
///   dispatch(kAllTypes, x.dtype, [&](auto zero) { using T = decltype(zero); … });
template <class... Ts, class F>
auto dispatch(ElementTypes<Ts...> types, DType dtype, F&& f) {
  using Result = std::common_type_t<decltype(f(Ts{}))...>;
  if constexpr (std::is_void_v<Result>) {
    if (((dtype == dtype_of<Ts> && (f(Ts{}), true)) || ...)) return;
  } else {
    Result result{};
    if (((dtype == dtype_of<Ts> && (result = f(Ts{}), true)) || ...)) return result;
  }
  std::string accepted;
  std::size_t left = sizeof...(Ts);
  ((accepted += std::string(to_string(dtype_of<Ts>)) + (--left > 1 ? ", " : left == 1 ? " and " : "")), ...);
  throw UsageError(std::string(types.where) + " computes in " + accepted + "; found " +
                   std::string(to_string(dtype)));
}

}  // namespace convoy

// Floating-point types of 16 bits, for cuda_fp16.h and cuda_bf16.h.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "emulator/program/device.h"
#include "emulator/program/vector_types.h"

namespace cuemu {

/// A number with a sign, Format::kExponentBits and Format::kFractionBits, 16 bits in all. It converts to f32
/// exactly.
template <class Format>
class SmallFloat {
 public:
  SmallFloat() = default;
  SmallFloat(float value) : bits_(rounded(value)) {}
  SmallFloat(double value) : SmallFloat(static_cast<float>(value)) {}
  SmallFloat(int value) : SmallFloat(static_cast<float>(value)) {}
  SmallFloat(unsigned value) : SmallFloat(static_cast<float>(value)) {}
  SmallFloat(long long value) : SmallFloat(static_cast<float>(value)) {}
  operator float() const {
    const int exponent = bits_ >> kFraction & kMaxExponent;
    const auto fraction = static_cast<float>(bits_ & kFractionMask);
    const float sign = (bits_ & 0x8000) != 0 ? -1.0f : 1.0f;
    if (exponent == kMaxExponent) return fraction == 0 ? sign * INFINITY : NAN;
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - kBias - kFraction);
    return sign * std::ldexp(1 + std::ldexp(fraction, -kFraction), exponent - kBias);
  }

  SmallFloat& operator+=(SmallFloat other) { return *this = SmallFloat(float(*this) + float(other)); }
  SmallFloat& operator-=(SmallFloat other) { return *this = SmallFloat(float(*this) - float(other)); }
  SmallFloat& operator*=(SmallFloat other) { return *this = SmallFloat(float(*this) * float(other)); }
  SmallFloat& operator/=(SmallFloat other) { return *this = SmallFloat(float(*this) / float(other)); }
  friend SmallFloat operator+(SmallFloat a, SmallFloat b) { return a += b; }
  friend SmallFloat operator-(SmallFloat a, SmallFloat b) { return a -= b; }
  friend SmallFloat operator*(SmallFloat a, SmallFloat b) { return a *= b; }
  friend SmallFloat operator/(SmallFloat a, SmallFloat b) { return a /= b; }
  SmallFloat operator-() const { return from_bits(bits_ ^ 0x8000); }
  friend bool operator==(SmallFloat a, SmallFloat b) { return float(a) == float(b); }
  friend bool operator!=(SmallFloat a, SmallFloat b) { return float(a) != float(b); }
  friend bool operator<(SmallFloat a, SmallFloat b) { return float(a) < float(b); }
  friend bool operator>(SmallFloat a, SmallFloat b) { return float(a) > float(b); }
  friend bool operator<=(SmallFloat a, SmallFloat b) { return float(a) <= float(b); }
  friend bool operator>=(SmallFloat a, SmallFloat b) { return float(a) >= float(b); }

  static SmallFloat from_bits(int bits) {
    SmallFloat result;
    result.bits_ = static_cast<std::uint16_t>(bits);
    return result;
  }
  std::uint16_t bits() const { return bits_; }

 private:
  static constexpr int kFraction = Format::kFractionBits, kFractionMask = (1 << kFraction) - 1;
  static constexpr int kMaxExponent = (1 << Format::kExponentBits) - 1, kBias = kMaxExponent / 2;

  /// Returns the bits of the nearest value, of two equally near ones that with an even last bit.
  static std::uint16_t rounded(float value) {
    const int sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return 0x7fff;
    if (std::isinf(value)) return static_cast<std::uint16_t>(sign | kMaxExponent << kFraction);
    if (value == 0) return static_cast<std::uint16_t>(sign);
    int exponent = 0;
    std::frexp(value, &exponent);  // |value| < 2^exponent
    const int unit = std::max(exponent - 1, 1 - kBias) - kFraction;
    const auto fraction = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(value), -unit)));
    // A fraction that is rounded up to the next power of two carries into the exponent.
    const int magnitude = ((unit + kFraction + kBias - 1) << kFraction) + fraction;
    return static_cast<std::uint16_t>(sign | std::min(magnitude, kMaxExponent << kFraction));
  }

  std::uint16_t bits_;
};

/// Two values, as one of 32 bits.
template <class T>
struct alignas(4) Pair {
  T x, y;
  friend Pair operator+(Pair a, Pair b) { return {a.x + b.x, a.y + b.y}; }
  friend Pair operator-(Pair a, Pair b) { return {a.x - b.x, a.y - b.y}; }
  friend Pair operator*(Pair a, Pair b) { return {a.x * b.x, a.y * b.y}; }
  friend Pair operator/(Pair a, Pair b) { return {a.x / b.x, a.y / b.y}; }
};

}  // namespace cuemu

/// The functions that both types have.
#define CUEMU_SMALL_FLOAT_FUNCTIONS(T, T2)                                                       \
  inline T __hadd(T a, T b) { return a + b; }                                                    \
  inline T __hsub(T a, T b) { return a - b; }                                                    \
  inline T __hmul(T a, T b) { return a * b; }                                                    \
  inline T __hdiv(T a, T b) { return a / b; }                                                    \
  inline T __hneg(T a) { return -a; }                                                            \
  inline T __habs(T a) { return T::from_bits(a.bits() & 0x7fff); }                               \
  inline T __hfma(T a, T b, T c) {                                                               \
    return T(std::fma(double(float(a)), double(float(b)), double(float(c))));                    \
  }                                                                                              \
  inline T __hmax(T a, T b) { return T(std::fmax(float(a), float(b))); }                         \
  inline T __hmin(T a, T b) { return T(std::fmin(float(a), float(b))); }                         \
  inline bool __heq(T a, T b) { return a == b; }                                                 \
  inline bool __hlt(T a, T b) { return a < b; }                                                  \
  inline bool __hgt(T a, T b) { return a > b; }                                                  \
  inline bool __hisnan(T a) { return std::isnan(float(a)); }                                     \
  inline T2 __hadd2(T2 a, T2 b) { return a + b; }                                                \
  inline T2 __hsub2(T2 a, T2 b) { return a - b; }                                                \
  inline T2 __hmul2(T2 a, T2 b) { return a * b; }                                                \
  inline T2 __hfma2(T2 a, T2 b, T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
  inline __attribute__((noinline, no_sanitize("thread"))) T atomicAdd(T* address, T value) {     \
    convoy::emulator::count_atomic(address, sizeof(T), __builtin_return_address(0));             \
    const T old = *address;                                                                      \
    *address = old + value;                                                                      \
    return old;                                                                                  \
  }

// The 16-bit floating-point type of IEEE 754. Operations compute in f32 and round to the nearest even value,
// which for one operation is the correctly rounded result.
#pragma once

#include "emulator/program/small_float.h"

namespace cuemu {
struct HalfFormat {
  static constexpr int kExponentBits = 5, kFractionBits = 10;
};
}  // namespace cuemu

using __half = cuemu::SmallFloat<cuemu::HalfFormat>;
using half = __half;
using __half2 = cuemu::Pair<__half>;
using half2 = __half2;

inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline float __half2float(__half x) { return x; }
inline __half __int2half_rn(int x) { return __half(static_cast<float>(x)); }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half __low2half(__half2 x) { return x.x; }
inline __half __high2half(__half2 x) { return x.y; }
inline float __low2float(__half2 x) { return x.x; }
inline float __high2float(__half2 x) { return x.y; }
inline float2 __half22float2(__half2 x) { return {x.x, x.y}; }
CUEMU_SMALL_FLOAT_FUNCTIONS(__half, __half2)
inline __half hsqrt(__half x) { return __half(std::sqrt(static_cast<float>(x))); }
inline __half hexp(__half x) { return __half(std::exp(static_cast<float>(x))); }

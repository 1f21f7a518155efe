// bfloat16: the first 16 bits of an f32. Operations compute in f32 and round to the nearest even value.
#pragma once

#include "emulator/program/small_float.h"

namespace cuemu {
struct Bfloat16Format {
  static constexpr int kExponentBits = 8, kFractionBits = 7;
};
}  // namespace cuemu

using __nv_bfloat16 = cuemu::SmallFloat<cuemu::Bfloat16Format>;
using nv_bfloat16 = __nv_bfloat16;
using __nv_bfloat162 = cuemu::Pair<__nv_bfloat16>;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return {__nv_bfloat16(x), __nv_bfloat16(x)}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
inline float2 __bfloat1622float2(__nv_bfloat162 x) { return {x.x, x.y}; }
CUEMU_SMALL_FLOAT_FUNCTIONS(__nv_bfloat16, __nv_bfloat162)

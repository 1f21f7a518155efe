// The vector types of CUDA, such as float4.
#pragma once

#include <cuda_runtime.h>

#define CUEMU_VECTORS(T, name, alignment2, alignment4)                  \
  struct name##1 {                                                      \
    T x;                                                                \
  };                                                                    \
  struct alignas(alignment2) name##2 {                                  \
    T x, y;                                                             \
  };                                                                    \
  CUEMU_VECTOR3(T, name)                                                \
  struct alignas(alignment4) name##4 {                                  \
    T x, y, z, w;                                                       \
  };                                                                    \
  constexpr name##1 make_##name##1(T x) { return {x}; }                 \
  constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define CUEMU_VECTOR3(T, name) \
  struct name##3 {             \
    T x, y, z;                 \
  };
CUEMU_VECTORS(signed char, char, 2, 4)
CUEMU_VECTORS(unsigned char, uchar, 2, 4)
CUEMU_VECTORS(short, short, 4, 8)
CUEMU_VECTORS(unsigned short, ushort, 4, 8)
CUEMU_VECTORS(int, int, 8, 16)
CUEMU_VECTORS(long, long, 16, 16)
CUEMU_VECTORS(unsigned long, ulong, 16, 16)
CUEMU_VECTORS(long long, longlong, 16, 16)
CUEMU_VECTORS(unsigned long long, ulonglong, 16, 16)
CUEMU_VECTORS(float, float, 8, 16)
CUEMU_VECTORS(double, double, 16, 16)
#undef CUEMU_VECTOR3
#define CUEMU_VECTOR3(T, name)  // uint3 is a built-in variable's
CUEMU_VECTORS(unsigned, uint, 8, 16)
#undef CUEMU_VECTOR3
#undef CUEMU_VECTORS

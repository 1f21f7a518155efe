// The transforms of Winograd's convolution F(4x4, 3x3), over vectors of channels.
//
// In one dimension, F(4, 3) computes four outputs y of a filter g with three taps over six inputs d. It takes
// 6 multiplications instead of 12 (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015,
// after Winograd and Toom):
//
//   y = A^T [(G g) . (B^T d)]
//
// This multiplies the values of two polynomials at the points 0, a, -a, b, -b and infinity. In two dimensions
// each matrix is applied to both axes, which takes 36 multiplications instead of 144. With transposed
// matrices, the same multiplications give the gradient of the filter: dg = G^T [(B^T d) . (A dy)].
#pragma once

#include <array>

#include "convoy/kernels/cpu/primitives/simd.h"

namespace convoy::kernels::winograd {

using simd::Vec;

constexpr int kOut = 4;     // outputs of a tile per axis
constexpr int kTaps = 3;    // taps of the filter per axis
constexpr int kIn = 6;      // inputs of a tile, and points, per axis
constexpr int kValues = 6;  // values of the transformed filter per axis, for either stride

// The points a and b. With a = 1 / b, rounding errors are half as large as with the usual points 1 and 2. The
// formulas below use ab = 1.
constexpr float kA = 2.0F / 3, kA2 = kA * kA, kA3 = kA2 * kA;
constexpr float kB = 3.0F / 2, kB2 = kB * kB, kB3 = kB2 * kB;
// The reciprocal of the product of a point's differences from the other points; it is 1 for the point 0.
constexpr float kOverA = -81.0F / 130, kOverB = 8.0F / 65;

struct InputTransform {  // B^T
  static constexpr int kFrom = kIn, kTo = kIn;
  static void apply(const Vec (&d)[kIn], Vec (&v)[kIn]) {
    const Vec even_a = d[4] - kB2 * d[2], odd_a = kA * d[3] - kB * d[1];
    const Vec even_b = d[4] - kA2 * d[2], odd_b = kB * d[3] - kA * d[1];
    v[0] = d[0] - (kA2 + kB2) * d[2] + d[4];
    v[1] = even_a + odd_a;
    v[2] = even_a - odd_a;
    v[3] = even_b + odd_b;
    v[4] = even_b - odd_b;
    v[5] = d[1] - (kA2 + kB2) * d[3] + d[5];
  }
};

struct FilterTransform {  // G
  static constexpr int kFrom = kTaps, kTo = kValues;
  static void apply(const Vec (&g)[kTaps], Vec (&u)[kValues]) {
    const Vec even_a = kOverA * g[0] + kOverA * kA2 * g[2], odd_a = kOverA * kA * g[1];
    const Vec even_b = kOverB * g[0] + kOverB * kB2 * g[2], odd_b = kOverB * kB * g[1];
    u[0] = g[0];
    u[1] = even_a + odd_a;
    u[2] = even_a - odd_a;
    u[3] = even_b + odd_b;
    u[4] = even_b - odd_b;
    u[5] = g[2];
  }
};

struct OutputTransform {  // A^T
  static constexpr int kFrom = kIn, kTo = kOut;
  static void apply(const Vec (&m)[kIn], Vec (&y)[kOut]) {
    const Vec even_a = m[1] + m[2], odd_a = m[1] - m[2];
    const Vec even_b = m[3] + m[4], odd_b = m[3] - m[4];
    y[0] = m[0] + even_a + even_b;
    y[1] = kA * odd_a + kB * odd_b;
    y[2] = kA2 * even_a + kB2 * even_b;
    y[3] = kA3 * odd_a + kB3 * odd_b + m[5];
  }
};

struct OutputGradientTransform {  // A
  static constexpr int kFrom = kOut, kTo = kIn;
  static void apply(const Vec (&y)[kOut], Vec (&z)[kIn]) {
    const Vec even_a = y[0] + kA2 * y[2], odd_a = kA * y[1] + kA3 * y[3];
    const Vec even_b = y[0] + kB2 * y[2], odd_b = kB * y[1] + kB3 * y[3];
    z[0] = y[0];
    z[1] = even_a + odd_a;
    z[2] = even_a - odd_a;
    z[3] = even_b + odd_b;
    z[4] = even_b - odd_b;
    z[5] = y[3];
  }
};

struct FilterGradientTransform {  // G^T
  static constexpr int kFrom = kValues, kTo = kTaps;
  static void apply(const Vec (&m)[kValues], Vec (&g)[kTaps]) {
    const Vec even_a = kOverA * (m[1] + m[2]), odd_a = kOverA * (m[1] - m[2]);
    const Vec even_b = kOverB * (m[3] + m[4]), odd_b = kOverB * (m[3] - m[4]);
    g[0] = m[0] + even_a + even_b;
    g[1] = kA * odd_a + kB * odd_b;
    g[2] = kA2 * even_a + kB2 * even_b + m[5];
  }
};

/// The scheme for stride 1: the transforms along one axis, and how they are combined. All directions use it.
struct UnitStride {
  using Input = InputTransform;
  using Filter = FilterTransform;
  using Output = OutputTransform;
  using OutputGradient = OutputGradientTransform;
  using FilterGradient = FilterGradientTransform;
  static constexpr int kStep = kOut;  // stride of the inputs of adjacent tiles in pixels
  /// Index of the filter value that is multiplied at each point.
  static constexpr std::array<int, kIn> kValueAt{0, 1, 2, 3, 4, 5};
};

/// Applies a transform to both axes. get(y, x, value) loads an input, put(y, x, value) stores a result.
template <class Transform, class Get, class Put>
inline __attribute__((always_inline)) void transform(Get&& get, Put&& put) {
  constexpr int kFrom = Transform::kFrom, kTo = Transform::kTo;
  Vec columns[kTo][kFrom];
#pragma GCC unroll 9
  for (int x = 0; x < kFrom; ++x) {
    Vec from[kFrom], to[kTo];
#pragma GCC unroll 9
    for (int y = 0; y < kFrom; ++y) get(y, x, from[y]);
    Transform::apply(from, to);
#pragma GCC unroll 9
    for (int y = 0; y < kTo; ++y) columns[y][x] = to[y];
  }
#pragma GCC unroll 9
  for (int y = 0; y < kTo; ++y) {
    Vec to[kTo];
    Transform::apply(columns[y], to);
#pragma GCC unroll 9
    for (int x = 0; x < kTo; ++x) put(y, x, to[x]);
  }
}

}  // namespace convoy::kernels::winograd

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

#include <algorithm>
#include <array>
#include <cstdint>

#include "convoy/kernels/cpu/primitives/simd.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

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

// The tiles into which Winograd's convolution divides images.

/// Square tiles of outputs, numbered row by row through all images. The last tile of an axis may overhang the
/// image.
struct Tiling {
  std::int64_t rows, columns, count;

  /// `side` is the side of a tile in outputs.
  Tiling(const Images& outputs, int side)
      : rows((outputs.h + side - 1) / side),
        columns((outputs.w + side - 1) / side),
        count(outputs.n * rows * columns) {}
};

/// Pointers to the pixels of a tile's window. Pixels outside the image point to `outside`.
template <int Size, class Element>
struct Window {
  Element* pixels[Size][Size];

  /// `step` is the stride of the windows in pixels. `shift` is the offset of the first window's
  /// corner from the image's corner: -padding for inputs.
  Window(Element* data, const Images& images, const Tiling& tiling, std::int64_t tile, std::int64_t step,
         std::int64_t shift, Element* outside) {
    const std::int64_t in_image = tile % (tiling.rows * tiling.columns);
    const std::int64_t top = in_image / tiling.columns * step + shift;
    const std::int64_t left = in_image % tiling.columns * step + shift;
    Element* const image = data + tile / (tiling.rows * tiling.columns) * images.image();
    for (std::int64_t y = 0; y < Size; ++y)
      for (std::int64_t x = 0; x < Size; ++x) {
        const bool inside = top + y >= 0 && top + y < images.h && left + x >= 0 && left + x < images.w;
        pixels[y][x] = inside ? image + ((top + y) * images.w + left + x) * images.channels : outside;
      }
  }
};

/// Transforms all channels of a window, one vector at a time. Calls put(point, channel, value) with each
/// result.
template <class Transform, int Size, class Element, class Put>
void transform_window(const Window<Size, const Element>& window, std::int64_t channels, Put&& put) {
  for (std::int64_t channel = 0; channel < channels; channel += simd::kLanes)
    transform<Transform>(
        [&](int y, int x, Vec& value) { simd::load(window.pixels[y][x] + channel, value); },
        [&](int y, int x, const Vec& value) { put(y * Transform::kTo + x, channel, value); });
}

// The transforms of Winograd's convolution for filters of three taps, stride 2 and a padding of one pixel.
//
// Output k of a tile with the inputs d is d[2k] g[0] + d[2k+1] g[1] + d[2k+2] g[2]. The odd inputs are
// multiplied by the middle tap only. The even inputs and the two outer taps form a convolution of stride 1,
// to which F(4, 2) applies: four outputs take 5 multiplications instead of 8, with the points 0, -1, 1/2, 2
// and infinity. The middle tap takes 4 multiplications as before. So one axis takes 9 multiplications instead
// of 12, and two axes take 81 instead of 144. Of all points, these have the smallest error in the worst
// output: the root of the sum of squares of its terms' coefficients is 2.6 times that of two plain products.
//
// The gradient of the input is a convolution of stride 1 over dy with the reversed filter. Its outputs
// alternate: one uses the middle tap only, the next uses the two outer taps. With a padding of one, the first
// uses the middle tap.

/// F(4, 2): four outputs of two taps over five inputs.
struct TwoTaps {
  static constexpr int kIn = 5;

  static void input(const Vec& d0, const Vec& d1, const Vec& d2, const Vec& d3, const Vec& d4, Vec* v) {
    v[0] = d0 - 1.5F * (d1 + d2) + d3;
    v[1] = d1 - 2.5F * d2 + d3;
    v[2] = d3 - d2 - 2.0F * d1;
    v[3] = d3 + 0.5F * (d2 - d1);
    v[4] = d1 - 1.5F * (d2 + d3) + d4;
  }
  static void filter(const Vec& g0, const Vec& g1, Vec* u) {
    u[0] = g0;
    u[1] = (g1 - g0) * (2.0F / 9);
    u[2] = (g0 + 0.5F * g1) * (-8.0F / 9);
    u[3] = (g0 + 2.0F * g1) * (1.0F / 9);
    u[4] = g1;
  }
  static void output(const Vec* m, Vec& y0, Vec& y1, Vec& y2, Vec& y3) {
    y0 = m[0] + m[1] + m[2] + m[3];
    y1 = 0.5F * m[2] + 2.0F * m[3] - m[1];
    y2 = 0.25F * m[2] + 4.0F * m[3] + m[1];
    y3 = 0.125F * m[2] + 8.0F * m[3] - m[1] + m[4];
  }
  static void output_gradient(const Vec (&y)[kOut], Vec* z) {
    z[0] = y[0];
    z[1] = y[0] - y[1] + y[2] - y[3];
    z[2] = y[0] + 0.5F * y[1] + 0.25F * y[2] + 0.125F * y[3];
    z[3] = y[0] + 2.0F * y[1] + 4.0F * y[2] + 8.0F * y[3];
    z[4] = y[3];
  }
  static void filter_gradient(const Vec* m, Vec& g0, Vec& g1) {
    g0 = m[0] - (2.0F / 9) * m[1] - (8.0F / 9) * m[2] + (1.0F / 9) * m[3];
    g1 = (2.0F / 9) * m[1] - (4.0F / 9) * m[2] + (2.0F / 9) * m[3] + m[4];
  }
};

constexpr int kStridedPoints = kOut + TwoTaps::kIn;  // the middle tap's points come first
constexpr std::array<int, kStridedPoints> kStridedValueAt{0, 0, 0, 0, 1, 2, 3, 4, 5};

struct StridedFilterTransform {
  static constexpr int kFrom = kTaps, kTo = kValues;
  static void apply(const Vec (&g)[kTaps], Vec (&u)[kValues]) {
    u[0] = g[1];
    TwoTaps::filter(g[0], g[2], u + 1);
  }
};

struct StridedFilterGradientTransform {
  static constexpr int kFrom = kValues, kTo = kTaps;
  static void apply(const Vec (&m)[kValues], Vec (&g)[kTaps]) {
    g[1] = m[0];
    TwoTaps::filter_gradient(m + 1, g[0], g[2]);
  }
};

struct StridedInputTransform {
  static constexpr int kFrom = 2 * kOut + 1, kTo = kStridedPoints;
  static void apply(const Vec (&d)[kFrom], Vec (&v)[kTo]) {
    for (int k = 0; k < kOut; ++k) v[k] = d[2 * k + 1];
    TwoTaps::input(d[0], d[2], d[4], d[6], d[8], v + kOut);
  }
};

struct StridedOutputTransform {
  static constexpr int kFrom = kStridedPoints, kTo = kOut;
  static void apply(const Vec (&m)[kFrom], Vec (&y)[kTo]) {
    TwoTaps::output(m + kOut, y[0], y[1], y[2], y[3]);
    for (int k = 0; k < kOut; ++k) y[k] += m[k];
  }
};

struct StridedOutputGradientTransform {
  static constexpr int kFrom = kOut, kTo = kStridedPoints;
  static void apply(const Vec (&y)[kFrom], Vec (&z)[kTo]) {
    for (int k = 0; k < kOut; ++k) z[k] = y[k];
    TwoTaps::output_gradient(y, z + kOut);
  }
};

/// The scheme of the forward direction and of the filter's gradient.
struct StrideTwo {
  using Input = StridedInputTransform;
  using Filter = StridedFilterTransform;
  using Output = StridedOutputTransform;
  using OutputGradient = StridedOutputGradientTransform;
  using FilterGradient = StridedFilterGradientTransform;
  static constexpr int kStep = 2 * kOut;
  static constexpr auto kValueAt = kStridedValueAt;
};

struct BackwardDataInputTransform {
  static constexpr int kFrom = TwoTaps::kIn, kTo = kStridedPoints;
  static void apply(const Vec (&d)[kFrom], Vec (&v)[kTo]) {
    for (int k = 0; k < kOut; ++k) v[k] = d[k];
    TwoTaps::input(d[0], d[1], d[2], d[3], d[4], v + kOut);
  }
};

struct BackwardDataOutputTransform {
  static constexpr int kFrom = kStridedPoints, kTo = 2 * kOut;
  static void apply(const Vec (&m)[kFrom], Vec (&y)[kTo]) {
    for (int k = 0; k < kOut; ++k) y[2 * k] = m[k];
    TwoTaps::output(m + kOut, y[1], y[3], y[5], y[7]);
  }
};

/// The scheme of the input's gradient, computed from dy with the filter rotated by 180 degrees.
struct StrideTwoBackwardData {
  using Input = BackwardDataInputTransform;
  using Filter = StridedFilterTransform;
  using Output = BackwardDataOutputTransform;
  static constexpr int kStep = kOut;
  static constexpr auto kValueAt = kStridedValueAt;
};

}  // namespace convoy::kernels::winograd

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
#pragma once

#include <array>

#include "convoy/kernels/cpu/winograd/transforms.h"

namespace convoy::kernels::winograd {

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

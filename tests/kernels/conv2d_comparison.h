// Comparison of convolutions in f32 with the reference loops in f64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include <span>

#include "convoy/kernels/conv2d.h"
#include "tests/kernels/array.h"
#include "tests/kernels/conv2d_cases.h"

namespace convoy::testing {

/// The inputs of a convolution, with equal values in f32 and f64.
template <class T>
struct ConvArrays {
  Array<T> x, filter, bias, dy;
  explicit ConvArrays(const ConvCase& c, std::size_t offset = 0)
      : x(Array<T>::random(c.x(), 1, offset)),
        filter(Array<T>::random(c.filter(), 2, offset)),
        bias(Array<T>::random({c.o}, 3, offset)),
        dy(Array<T>::random(c.y(), 4, offset)) {}
};

/// Returns the error bound of a direct sum. A sum of K products of uniform numbers in [-1, 1] has magnitude
/// sqrt(K) / 3, and its relative rounding error is eps sqrt(K). One more term accounts for an added bias or
/// gradient.
inline double direct_tolerance(std::int64_t terms) {
  const double k = static_cast<double>(terms);
  return 4 * kEps * (std::sqrt(k) * std::sqrt(k) / 3 + 1);
}

/// The three functions of a convolution algorithm.
struct ConvAlgorithm {
  void (*forward)(CpuStream&, ConstView x, ConstView filter, ConstView bias, View y, Conv2dOptions);
  void (*backward_data)(CpuStream&, ConstView dy, ConstView filter, GradView dx, Conv2dOptions);
  void (*backward_filter)(CpuStream&, ConstView dy, ConstView x, GradView dfilter, Conv2dOptions);
};

/// Compares all functions of an algorithm in f32 with the reference loops in f64. rounding: the allowed error
/// relative to direct_tolerance.
inline void compare_with_reference(CpuStream& stream, const ConvAlgorithm& algorithm, double rounding,
                                   const ConvCase& c, GradMode mode, std::size_t offset = 0) {
  SCOPED_TRACE(::testing::Message() << c << (mode == GradMode::accumulate ? ", accumulated" : ""));
  const ConvArrays<float> in(c, offset);
  const ConvArrays<double> exact(c);

  for (const bool relu : {false, true})
    for (const bool with_bias : {false, true}) {
      Conv2dOptions options = c.options();
      options.relu = relu;
      Array<float> y(c.y(), 9, offset);
      Array<double> expected(c.y(), 9);
      algorithm.forward(stream, in.x.view(), in.filter.view(), with_bias ? in.bias.view() : ConstView(),
                        y.view(), options);
      kernels::conv2d_forward_reference(stream, exact.x.view(), exact.filter.view(),
                                        with_bias ? exact.bias.view() : ConstView(), expected.view(),
                                        options);
      expect_near(y, expected, rounding * direct_tolerance(c.kh * c.kw * c.i));
    }
  {
    auto dx = Array<float>::random(c.x(), 5, offset);
    auto expected = Array<double>::random(c.x(), 5);
    algorithm.backward_data(stream, in.dy.view(), in.filter.view(), dx.grad(mode), c.options());
    kernels::conv2d_backward_data_reference(stream, exact.dy.view(), exact.filter.view(), expected.grad(mode),
                                            c.options());
    expect_near(dx, expected, rounding * direct_tolerance(c.kh * c.kw * c.o));
  }
  {
    auto dfilter = Array<float>::random(c.filter(), 6, offset);
    auto expected = Array<double>::random(c.filter(), 6);
    algorithm.backward_filter(stream, in.dy.view(), in.x.view(), dfilter.grad(mode), c.options());
    kernels::conv2d_backward_filter_reference(stream, exact.dy.view(), exact.x.view(), expected.grad(mode),
                                              c.options());
    expect_near(dfilter, expected, rounding * direct_tolerance(c.n * c.oh() * c.ow()));
  }
}

/// The same for several cases, with one thread and with three, and accumulated on unaligned arrays.
inline void compare_with_reference(const ConvAlgorithm& algorithm, double rounding,
                                   std::span<const ConvCase> cases) {
  CpuStream one({.threads = 1}), three({.threads = 3});
  for (const ConvCase& c : cases) {
    compare_with_reference(one, algorithm, rounding, c, GradMode::overwrite);
    compare_with_reference(three, algorithm, rounding, c, GradMode::overwrite);
    compare_with_reference(three, algorithm, rounding, c, GradMode::accumulate, 3);
  }
}

/// Expects the same bits from all functions of an algorithm with one thread and with three.
template <class T>
void expect_bits_of_any_threads(const ConvAlgorithm& algorithm, const ConvCase& c) {
  SCOPED_TRACE(::testing::Message() << c);
  CpuStream one({.threads = 1});
  CpuStream three({.threads = 3});
  const ConvArrays<T> in(c);
  Array<T> y1(c.y()), y3(c.y()), dx1(c.x()), dx3(c.x()), dfilter1(c.filter()), dfilter3(c.filter());
  const auto run = [&](CpuStream& stream, Array<T>& y, Array<T>& dx, Array<T>& dfilter) {
    algorithm.forward(stream, in.x.view(), in.filter.view(), in.bias.view(), y.view(), c.options());
    algorithm.backward_data(stream, in.dy.view(), in.filter.view(), dx.grad(), c.options());
    algorithm.backward_filter(stream, in.dy.view(), in.x.view(), dfilter.grad(), c.options());
  };
  run(one, y1, dx1, dfilter1);
  run(three, y3, dx3, dfilter3);
  expect_same_bits(y1, y3);
  expect_same_bits(dx1, dx3);
  expect_same_bits(dfilter1, dfilter3);
}

}  // namespace convoy::testing

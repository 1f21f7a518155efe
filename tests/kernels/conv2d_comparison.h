// Convolutions in f32 beside the plain loops in f64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/conv2d.h"
#include "tests/kernels/array.h"
#include "tests/kernels/conv2d_cases.h"

namespace convoy::testing {

/// Values are the same in f32 and f64.
template <class T>
struct ConvArrays {
  Array<T> x, filter, bias, dy;
  explicit ConvArrays(const ConvCase& c, std::size_t offset = 0)
      : x(Array<T>::random(c.x(), 1, offset)),
        filter(Array<T>::random(c.filter(), 2, offset)),
        bias(Array<T>::random({c.o}, 3, offset)),
        dy(Array<T>::random(c.y(), 4, offset)) {}
};

// A sum of K products of uniforms in [-1, 1] has size sqrt(K) / 3; its roundings cost eps sqrt(K) of that.
// One more for what is added to it (a bias, a gradient).
inline double direct_tolerance(std::int64_t terms) {
  const double k = static_cast<double>(terms);
  return 4 * kEps * (std::sqrt(k) * std::sqrt(k) / 3 + 1);
}

struct ConvAlgorithm {
  void (*forward)(CpuStream&, ConstView x, ConstView filter, ConstView bias, View y, Conv2dOptions);
  void (*backward_data)(CpuStream&, ConstView dy, ConstView filter, GradView dx, Conv2dOptions);
  void (*backward_filter)(CpuStream&, ConstView dy, ConstView x, GradView dfilter, Conv2dOptions);
};

/// All of an algorithm in f32 beside the loops in f64. `rounding`: how many times those of direct sums its
/// errors may be.
inline void compare_with_reference(CpuStream& stream, const ConvAlgorithm& algorithm, double rounding,
                                   const ConvCase& c, Mode mode, std::size_t offset = 0) {
  SCOPED_TRACE(::testing::Message() << c << (mode == Mode::add ? ", added" : ""));
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
      conv2d_forward_reference(stream, exact.x.view(), exact.filter.view(),
                               with_bias ? exact.bias.view() : ConstView(), expected.view(), options);
      expect_near(y, expected, rounding * direct_tolerance(c.kh * c.kw * c.i));
    }
  {
    auto dx = Array<float>::random(c.x(), 5, offset);
    auto expected = Array<double>::random(c.x(), 5);
    algorithm.backward_data(stream, in.dy.view(), in.filter.view(), dx.grad(mode), c.options());
    conv2d_backward_data_reference(stream, exact.dy.view(), exact.filter.view(), expected.grad(mode),
                                   c.options());
    expect_near(dx, expected, rounding * direct_tolerance(c.kh * c.kw * c.o));
  }
  {
    auto dfilter = Array<float>::random(c.filter(), 6, offset);
    auto expected = Array<double>::random(c.filter(), 6);
    algorithm.backward_filter(stream, in.dy.view(), in.x.view(), dfilter.grad(mode), c.options());
    conv2d_backward_filter_reference(stream, exact.dy.view(), exact.x.view(), expected.grad(mode),
                                     c.options());
    expect_near(dfilter, expected, rounding * direct_tolerance(c.n * c.oh() * c.ow()));
  }
}

}  // namespace convoy::testing

// Tests of the elementwise kernels and of dropout on the CPU.
#include "convoy/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;

constexpr std::int64_t kSizes[] = {0, 1, 31, 32, 33, 255, 257, 100003};

template <class T>
class Elementwise : public ::testing::Test {
 protected:
  // A few roundings, and a library function with an error of one or two ulp.
  static constexpr double kTolerance = 8 * static_cast<double>(std::numeric_limits<T>::epsilon());

  static void expect_close(const Array<T>& found, const Array<T>& expected) {
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], kTolerance * (1 + std::abs(static_cast<double>(expected[i]))))
          << "element " << i;
  }

  /// Runs the kernel z = f(x, y) for all sizes and both modes, out of place and in place, with one and three
  /// threads. Expects the same bits for both numbers of threads.
  static void check(const std::function<void(CpuStream&, ConstView x, ConstView y, GradView z)>& kernel,
                    const std::function<double(double x, double y)>& f, bool can_add) {
    CpuStream one({.threads = 1}), three({.threads = 3});
    for (const std::int64_t n : kSizes) {
      SCOPED_TRACE("n " + std::to_string(n));
      Array<T> x = Array<T>::random({n}, 1, 3), y = Array<T>::random({n}, 2, 5);
      for (T& element : x) element *= 8;
      Array<T> expected({n});
      for (std::size_t i = 0; i < x.size(); ++i) expected[i] = static_cast<T>(f(x[i], y[i]));

      Array<T> z({n}, T{3}, 1), same({n}, T{4});
      kernel(one, x.view(), y.view(), z.grad());
      expect_close(z, expected);
      kernel(three, x.view(), y.view(), same.grad());
      testing::expect_same_bits(same, z);
      if (can_add) {
        kernel(three, x.view(), y.view(), z.grad(GradMode::accumulate));
        for (T& element : same) element += element;
        testing::expect_same_bits(z, same);  // both runs must agree
      }
      Array<T> on_x = x, on_y = y;
      kernel(three, on_x.view(), y.view(), on_x.grad());
      expect_close(on_x, expected);
      kernel(three, x.view(), on_y.view(), on_y.grad());
      expect_close(on_y, expected);
    }
  }
  static void check_forward(void (*kernel)(CpuStream&, ConstView, View), double (*f)(double)) {
    check([=](CpuStream& s, ConstView x, ConstView, GradView z) { kernel(s, x, z); },
          [=](double x, double) { return f(x); }, false);
  }
};

using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, Types);

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double normal_cdf_of(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
double normal_density_of(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }

TYPED_TEST(Elementwise, Add) {
  this->check([](CpuStream& s, ConstView x, ConstView y, GradView z) { kernels::add(s, x, y, z); },
              [](double x, double y) { return x + y; }, false);
  this->check([](CpuStream& s, ConstView x, ConstView y, GradView z) { kernels::add(s, x, y, z, 0.5, -2); },
              [](double x, double y) { return 0.5 * x - 2 * y; }, false);
}

TYPED_TEST(Elementwise, Mul) {
  this->check([](CpuStream& s, ConstView x, ConstView y, GradView z) { kernels::mul(s, x, y, z); },
              [](double x, double y) { return x * y; }, true);
}

TYPED_TEST(Elementwise, Scale) {
  this->check([](CpuStream& s, ConstView x, ConstView, GradView z) { kernels::scale(s, x, 0.3, z); },
              [](double x, double) { return static_cast<TypeParam>(0.3) * x; }, true);
}

TYPED_TEST(Elementwise, Relu) {
  this->check_forward(kernels::relu_forward, [](double x) { return std::max(x, 0.0); });
  this->check([](CpuStream& s, ConstView x, ConstView y, GradView z) { kernels::relu_backward(s, x, y, z); },
              [](double dy, double y) { return y > 0 ? dy : 0; }, true);
}

TYPED_TEST(Elementwise, Gelu) {
  this->check_forward(kernels::gelu_forward, [](double x) { return x * normal_cdf_of(x); });
  this->check([](CpuStream& s, ConstView x, ConstView y, GradView z) { kernels::gelu_backward(s, x, y, z); },
              [](double dy, double x) { return dy * (normal_cdf_of(x) + x * normal_density_of(x)); }, true);
}

TYPED_TEST(Elementwise, Silu) {
  this->check_forward(kernels::silu_forward, [](double x) { return x * sigmoid_of(x); });
  this->check([](CpuStream& s, ConstView x, ConstView y, GradView z) { kernels::silu_backward(s, x, y, z); },
              [](double dy, double x) { return dy * sigmoid_of(x) * (1 + x * (1 - sigmoid_of(x))); }, true);
}

TYPED_TEST(Elementwise, Tanh) {
  this->check_forward(kernels::tanh_forward, [](double x) { return std::tanh(x); });
  this->check([](CpuStream& s, ConstView x, ConstView y, GradView z) { kernels::tanh_backward(s, x, y, z); },
              [](double dy, double y) { return dy * (1 - y * y); }, true);
}

TYPED_TEST(Elementwise, Sigmoid) {
  this->check_forward(kernels::sigmoid_forward, sigmoid_of);
  this->check(
      [](CpuStream& s, ConstView x, ConstView y, GradView z) { kernels::sigmoid_backward(s, x, y, z); },
      [](double dy, double y) { return dy * y * (1 - y); }, true);
}

TYPED_TEST(Elementwise, Fill) {
  CpuStream stream({.threads = 3});
  for (const std::int64_t n : kSizes) {
    Array<TypeParam> y({n}, TypeParam{1}, 7);
    kernels::fill(stream, 0.1, y.view());
    for (const TypeParam element : y) ASSERT_EQ(element, static_cast<TypeParam>(0.1));
  }
}

// Values and derivatives from PyTorch 2.15 in double. gelu at -8, where PyTorch loses two digits, is computed
// with erfc.
TEST(Activations, MatchTheReference) {
  struct Case {
    const char* name;
    void (*forward)(CpuStream&, ConstView, View);
    void (*backward)(CpuStream&, ConstView, ConstView, GradView);
    bool backward_takes_output;
    std::vector<double> values, derivatives;
  };
  const std::vector<double> points = {-8, -3, -0.5, 0, 0.75, 4};
  const std::vector<Case> cases = {
      {"gelu",
       kernels::gelu_forward,
       kernels::gelu_backward,
       false,
       {-4.9767684594174555e-15, -0.00404969409489031, -0.15426876936299344, 0, 0.5800294857173489,
        3.9998733150326675},
       {-3.979607261086796e-14, -0.01194564720418392, 0.13250487534383712, 0.5, 0.9992257217392352,
        1.0005036496612265}},
      {"silu",
       kernels::silu_forward,
       kernels::silu_backward,
       false,
       {-0.002682801043731825, -0.14227761953270035, -0.1887703343990727, 0, 0.5093840243815447,
        3.928055160151634},
       {-0.0023465512355853157, -0.08810410601516962, 0.2600388126973482, 0.5, 0.8425999444967536,
        1.0526646148910728}},
      {"tanh",
       kernels::tanh_forward,
       kernels::tanh_backward,
       true,
       {-0.9999997749296758, -0.9950547536867305, -0.46211715726000974, 0, 0.6351489523872873,
        0.999329299739067},
       {4.5014059765485253e-07, 0.009866037165440166, 0.7864477329659274, 1, 0.5965858082813315,
        0.0013409506830259165}},
      {"sigmoid",
       kernels::sigmoid_forward,
       kernels::sigmoid_backward,
       true,
       {0.0003353501304664781, 0.04742587317756678, 0.3775406687981454, 0.5, 0.679178699175393,
        0.9820137900379085},
       {0.00033523767075647424, 0.04517665973091214, 0.2350037122015945, 0.25, 0.21789499376181404,
        0.017662706213291107}},
  };
  CpuStream stream({.threads = 1});
  for (const Case& c : cases) {
    Array<double> x({6}), y({6}), ones({6}, 1), dx({6});
    std::copy(points.begin(), points.end(), x.begin());
    c.forward(stream, x.view(), y.view());
    c.backward(stream, ones.view(), c.backward_takes_output ? y.view() : x.view(), dx.grad());
    for (std::size_t i = 0; i < points.size(); ++i) {
      // Relative tolerances. The rounding error of erfc's argument is amplified by x^2 = 64. In the tail, 1 -
      // tanh^2 has nine correct digits.
      EXPECT_NEAR(y[i], c.values[i], 64 * 0x1p-52 * std::abs(c.values[i])) << c.name << " at " << points[i];
      EXPECT_NEAR(dx[i], c.derivatives[i], 1e-9 * std::abs(c.derivatives[i]))
          << c.name << " at " << points[i];
    }
  }
}

TEST(Activations, HandleExtremesAndPropagateNan) {
  using Forward = void (*)(CpuStream&, ConstView, View);
  using Backward = void (*)(CpuStream&, ConstView, ConstView, GradView);
  struct Case {
    Forward forward;
    Backward backward;
    float at_minus, at_plus;  // values at -1e4 and 1e4
  };
  CpuStream stream({.threads = 1});
  const Array<float> x({3}, {-1e4f, 1e4f, std::nanf("")}), ones({3}, 1.0f);
  for (const Case& c :
       {Case{kernels::relu_forward, nullptr, 0, 1e4f},
        Case{kernels::gelu_forward, kernels::gelu_backward, 0, 1e4f},
        Case{kernels::silu_forward, kernels::silu_backward, 0, 1e4f},
        Case{kernels::tanh_forward, nullptr, -1, 1}, Case{kernels::sigmoid_forward, nullptr, 0, 1}}) {
    Array<float> y({3}), dx({3});
    c.forward(stream, x.view(), y.view());
    EXPECT_EQ(y[0], c.at_minus);
    EXPECT_EQ(y[1], c.at_plus);
    EXPECT_TRUE(std::isnan(y[2]));
    if (c.backward == nullptr) continue;
    c.backward(stream, ones.view(), x.view(), dx.grad());
    EXPECT_EQ(dx[0], 0);
    EXPECT_EQ(dx[1], 1);
  }
}

TEST(GradViews, DoNotWriteToNull) {
  CpuStream stream({.threads = 1});
  const Array<float> x({3}, 1.0f);
  EXPECT_NO_THROW(kernels::mul(stream, x.view(), x.view(), GradView()));
  EXPECT_NO_THROW(
      kernels::relu_backward(stream, x.view(), x.view(), GradView(View{nullptr, {3}, DType::f32})));
}

class Dropout : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSample = 7 * 3;  // elements: not a multiple of the four words of a draw
  CpuStream one{{.threads = 1}}, three{{.threads = 3}};
  const Random random{.seed = 11, .purpose = RandomPurpose::dropout, .stream = 2};
};

TEST_F(Dropout, FollowsItsDefinition) {
  const Array<std::int32_t> ids({4}, {5, 0, 1000000, 7});
  const Array<float> x = Array<float>::random({4, 7, 3}, 3);
  for (const double p : {0.0, 0.3, 0.5, 1.0}) {
    Array<float> y({4, 7, 3}), expected({4, 7, 3});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t e = i % kSample;
      const auto id = static_cast<std::uint64_t>(ids[i / kSample]);
      const bool dropped = to_uniform(random.words(id, static_cast<std::uint32_t>(e / 4))[e % 4]) < p;
      expected[i] = dropped ? 0.0f : x[i] * static_cast<float>(1 / (1 - p));
    }
    kernels::dropout(three, x.view(), ids.view(), p, random, y.grad());
    testing::expect_same_bits(y, expected);
    kernels::dropout(one, x.view(), ids.view(), p, random, y.grad(GradMode::accumulate));
    for (float& element : expected) element += element;
    testing::expect_same_bits(y, expected);
  }
}

TEST_F(Dropout, DependsOnTheSampleOnly) {
  constexpr std::int64_t kLarge = 10007;
  const Array<double> x({3, kLarge}, 1.0), row({1, kLarge}, 1.0);
  const Array<std::int32_t> ids({3}, {4, 9, 2}), id({1}, {9});
  Array<double> y({3, kLarge}), alone({1, kLarge});
  kernels::dropout(three, x.view(), ids.view(), 0.25, random, y.grad());
  kernels::dropout(one, row.view(), id.view(), 0.25, random, alone.grad());
  std::int64_t kept = 0;
  for (std::size_t e = 0; e < alone.size(); ++e) {
    ASSERT_EQ(y[kLarge + e], alone[e]) << e;
    kept += alone[e] != 0 ? 1 : 0;
  }
  // Five standard deviations of the binomial distribution.
  EXPECT_NEAR(static_cast<double>(kept), 0.75 * kLarge, 5 * std::sqrt(0.75 * 0.25 * kLarge));
}

TEST_F(Dropout, ReadsTheEpochFromMemory) {
  const Array<std::int32_t> ids({4}, {5, 0, 1000000, 7});
  const Array<float> x = Array<float>::random({4, 7, 3}, 3);
  Array<float> y({4, 7, 3}), expected({4, 7, 3});
  kernels::dropout(three, x.view(), ids.view(), 0.3, random, expected.grad());
  const std::int32_t epoch = 2;
  const Random by_cell{.seed = 11, .purpose = RandomPurpose::dropout, .cell = &epoch};
  kernels::dropout(three, x.view(), ids.view(), 0.3, by_cell, y.grad());
  testing::expect_same_bits(y, expected);
}

TEST_F(Dropout, AcceptsEmptyBatch) {
  Array<float> x({0, 5}), y({0, 5});
  const Array<std::int32_t> ids({0});
  kernels::dropout(three, x.view(), ids.view(), 0.5, random, y.grad());
}

}  // namespace
}  // namespace convoy

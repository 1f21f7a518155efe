// Tests of the elementwise kernels and of dropout on the CPU.
#include "convoy/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;

using kernels::UnaryOp;

/// A kernel z = f(x, y).
using Kernel = std::function<void(CpuStream&, ConstView x, ConstView y, GradView z)>;

/// Runs a kernel out of place and in place, with one and three threads, and adds its result to itself. Expects the
/// same bits every time. The values are tested by the op cases.
template <class T>
void expect_same_bits_everywhere(const Kernel& kernel, bool can_add) {
  CpuStream one({.threads = 1}), three({.threads = 3});
  for (const std::int64_t n : {0, 1, 33, 100003}) {
    SCOPED_TRACE("n " + std::to_string(n));
    Array<T> x = Array<T>::random({n}, 1, 3), y = Array<T>::random({n}, 2, 5);
    for (T& element : x) element = std::abs(8 * element);  // in the domain of log
    Array<T> z({n}, T{3}, 1), same({n}, T{4}), on_x = x, on_y = y;
    kernel(one, x.view(), y.view(), z.grad());
    kernel(three, x.view(), y.view(), same.grad());
    testing::expect_same_bits(same, z);
    kernel(three, on_x.view(), y.view(), on_x.grad());
    testing::expect_same_bits(on_x, z);
    kernel(three, x.view(), on_y.view(), on_y.grad());
    testing::expect_same_bits(on_y, z);
    if (!can_add) continue;
    kernel(three, x.view(), y.view(), same.grad(GradMode::accumulate));
    for (T& element : z) element += element;
    testing::expect_same_bits(same, z);
  }
}

template <class T>
class Elementwise : public ::testing::Test {};
using ElementwiseTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, ElementwiseTypes);

TYPED_TEST(Elementwise, GivesTheSameBitsInPlaceAndForEveryNumberOfThreads) {
  expect_same_bits_everywhere<TypeParam>(
      [](auto& s, auto x, auto y, auto z) { kernels::add(s, x, y, z, 0.5, -2); }, false);
  expect_same_bits_everywhere<TypeParam>([](auto& s, auto x, auto y, auto z) { kernels::mul(s, x, y, z); },
                                         true);
  expect_same_bits_everywhere<TypeParam>([](auto& s, auto x, auto, auto z) { kernels::scale(s, x, 0.3, z); },
                                         true);
  expect_same_bits_everywhere<TypeParam>(
      [](auto& s, auto x, auto, auto z) { kernels::add_scalar(s, x, 0.3, z); }, false);
  for (int op = 0; op <= static_cast<int>(UnaryOp::pow); ++op) {
    SCOPED_TRACE("op " + std::to_string(op));
    expect_same_bits_everywhere<TypeParam>(
        [op](auto& s, auto x, auto, auto z) {
          kernels::unary_forward(s, UnaryOp{static_cast<std::uint8_t>(op)}, x, z, 1.5);
        },
        false);
    expect_same_bits_everywhere<TypeParam>(
        [op](auto& s, auto x, auto dy, auto z) {
          kernels::unary_backward(s, UnaryOp{static_cast<std::uint8_t>(op)}, dy, x, z, 1.5);
        },
        true);
  }
}

TEST(Activations, HandleExtremesAndPropagateNan) {
  struct Case {
    UnaryOp op;
    float at_minus, at_plus;  // values at -1e4 and 1e4
  };
  CpuStream stream({.threads = 1});
  const Array<float> x({3}, {-1e4f, 1e4f, std::nanf("")}), ones({3}, 1.0f);
  for (const Case& c :
       {Case{UnaryOp::relu, 0, 1e4f}, Case{UnaryOp::gelu, 0, 1e4f}, Case{UnaryOp::silu, 0, 1e4f},
        Case{UnaryOp::tanh, -1, 1}, Case{UnaryOp::sigmoid, 0, 1}}) {
    Array<float> y({3}), dx({3});
    kernels::unary_forward(stream, c.op, x.view(), y.view());
    EXPECT_EQ(y[0], c.at_minus);
    EXPECT_EQ(y[1], c.at_plus);
    EXPECT_TRUE(std::isnan(y[2]));
    if (uses_output(c.op)) continue;
    kernels::unary_backward(stream, c.op, ones.view(), x.view(), dx.grad());
    EXPECT_EQ(dx[0], 0);
    EXPECT_EQ(dx[1], 1);
  }
}

TEST(GradViews, DoNotWriteToNull) {
  CpuStream stream({.threads = 1});
  const Array<float> x({3}, 1.0f);
  EXPECT_NO_THROW(kernels::mul(stream, x.view(), x.view(), GradView()));
  EXPECT_NO_THROW(kernels::unary_backward(stream, kernels::UnaryOp::relu, x.view(), x.view(),
                                          GradView(View{nullptr, {3}, DType::f32})));
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

// Tests of GEMM and linear layers on the CPU.
#include "convoy/kernels/matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;
using testing::expect_near;
using testing::kEps;

struct Sizes {
  std::int64_t m, n, k;
};

// Computes the GEMM by its definition. c holds the values that are added to.
template <class T>
Array<double> reference_gemm(const Array<T>& a, const Array<T>& b, const Array<T>& c, Sizes s,
                             kernels::MatmulOptions options) {
  Array<double> out = c.template to<double>();
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j)
      for (std::int64_t k = 0; k < s.k; ++k)
        out[static_cast<std::size_t>(i * s.n + j)] +=
            static_cast<double>(
                a[static_cast<std::size_t>(options.transpose_a ? k * s.m + i : i * s.k + k)]) *
            static_cast<double>(b[static_cast<std::size_t>(options.transpose_b ? j * s.k + k : k * s.n + j)]);
  return out;
}

template <class T>
void compare(Sizes s, kernels::MatmulOptions options, GradMode mode, double eps) {
  SCOPED_TRACE(::testing::Message() << s.m << "x" << s.k << " times " << s.k << "x" << s.n << ", transposed "
                                    << options.transpose_a << options.transpose_b);
  CpuStream stream({.threads = 2});
  const auto a = Array<T>::random(options.transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1, 1);
  const auto b = Array<T>::random(options.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2, 3);
  auto c = Array<T>::random({s.m, s.n}, 3, 1);
  const Array<double> expected =
      reference_gemm(a, b, mode == GradMode::accumulate ? c : Array<T>({s.m, s.n}), s, options);
  kernels::matmul(stream, a.view(), b.view(), c.grad(mode), options);
  // A sum of K terms, each the product of two uniform numbers in [-1, 1], has size sqrt(K) / 3. Its relative
  // error is eps sqrt(K) in any order.
  const double terms = static_cast<double>(s.k);
  expect_near(c, expected, 4 * eps * (std::sqrt(terms) * std::sqrt(terms) / 3 + 1));
}

TEST(Matmul, EqualsItsDefinitionInEveryTransposition) {
  for (const Sizes s : {Sizes{1, 1, 1}, {3, 5, 7}, {17, 1, 33}, {1, 19, 4}, {64, 48, 120}, {130, 67, 257}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
          compare<float>(s, {.transpose_a = ta, .transpose_b = tb}, mode, kEps);
          compare<double>(s, {.transpose_a = ta, .transpose_b = tb}, mode,
                          std::numeric_limits<double>::epsilon());
        }
}

TEST(Matmul, ComputesBlocksOfLargeMatrices) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      compare<float>({210, 305, 128}, {.transpose_a = ta, .transpose_b = tb}, GradMode::accumulate, kEps);
}

TEST(Matmul, BitsDoNotDependOnThreads) {
  const auto a = Array<float>::random({3, 210, 128}, 1, 1), b = Array<float>::random({128, 305}, 2, 1);
  const auto product = [&](int threads) {
    CpuStream stream({.threads = threads});
    Array<float> c({3, 210, 305});
    kernels::matmul(stream, a.view(), b.view(), c.grad());
    return c;
  };
  const Array<float> expected = product(1);
  for (const int threads : {2, 3, 5}) testing::expect_same_bits(product(threads), expected);
}

TEST(Matmul, SumOfNoTermsIsZero) {
  for (const bool ta : {false, true}) {
    compare<float>({3, 4, 0}, {.transpose_a = ta}, GradMode::overwrite, kEps);
    compare<float>({3, 4, 0}, {.transpose_a = ta}, GradMode::accumulate, kEps);
  }
}

TEST(Matmul, DoesNothingForEmptyResult) {
  compare<float>({0, 4, 3}, {}, GradMode::overwrite, kEps);
  compare<double>({4, 0, 3}, {.transpose_b = true}, GradMode::accumulate, kEps);
}

TEST(Linear, ReturnsBiasForEmptySums) {
  CpuStream stream({.threads = 1});
  const Array<float> bias({2}, {3, -4});
  Array<float> y({2, 2});
  kernels::linear_forward(stream, Array<float>({2, 0}).view(), Array<float>({2, 0}).view(), bias.view(),
                          y.view(), true);
  testing::expect_same_bits(y, Array<float>({2, 2}, {3, 0, 3, 0}));
}

TEST(Linear, ReluPropagatesNan) {
  CpuStream stream({.threads = 1});
  const Array<float> x({1, 1}, {std::numeric_limits<float>::quiet_NaN()}), weight({1, 1}, {1});
  Array<float> y({1, 1});
  kernels::linear_forward(stream, x.view(), weight.view(), ConstView(), y.view(), true);
  EXPECT_TRUE(std::isnan(y[0]));
}

TEST(Matmul, RejectsSizesThatOverflowBlasInt) {
  CpuStream stream({.threads = 1});
  const std::int64_t huge = std::int64_t{1} << 32;
  float nothing = 0;
  EXPECT_THROW(kernels::matmul(stream, ConstView(&nothing, {huge, 1}, DType::f32),
                               ConstView(&nothing, {1, 1}, DType::f32),
                               GradView(View{&nothing, {huge, 1}, DType::f32})),
               UsageError);
}

}  // namespace
}  // namespace convoy

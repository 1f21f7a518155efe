// Tests that GEMM, convolution, batch norm and pooling on bf16 on the CPU compute in f32 and round once.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "convoy/kernels/cpu/onednn/versions.h"
#include "convoy/kernels/matmul.h"
#include "tests/kernels/batchnorm_shards.h"
#include "tests/kernels/both_types.h"
#include "tests/kernels/conv2d_cases.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using testing::Array;
using testing::BothTypes;
using testing::ConvCase;
using testing::in_both_types;
using testing::Norm;

class Bf16Nn : public ::testing::TestWithParam<GradMode> {
 protected:
  CpuStream stream{{.threads = 2}};
};

INSTANTIATE_TEST_SUITE_P(Modes, Bf16Nn, ::testing::Values(GradMode::overwrite, GradMode::accumulate));

TEST_P(Bf16Nn, Gemms) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      BothTypes a(transpose_a ? Shape{33, 17} : Shape{17, 33}, 1);
      BothTypes b(transpose_b ? Shape{29, 33} : Shape{33, 29}, 2);
      BothTypes c({17, 29}, 3);
      in_both_types([&]<class T>() {
        kernels::matmul(stream, a.in<T>(), b.in<T>(), c.grad<T>(GetParam()), {transpose_a, transpose_b});
      });
      c.expect_rounded_near(
          testing::dot_tolerance<bfloat16>(33));  // BLAS may add to c at any point of the sum
    }
}

TEST(Bf16Linear, RoundsOnceAfterBias) {
  CpuStream stream({.threads = 2});
  for (const bool relu : {false, true})
    for (const bool with_bias : {false, true}) {
      BothTypes x({17, 33}, 1), weight({29, 33}, 2), bias({29}, 3), y({17, 29}, 4);
      in_both_types([&]<class T>() {
        kernels::linear_forward(stream, x.in<T>(), weight.in<T>(), with_bias ? bias.in<T>() : ConstView(),
                                y.out<T>(), relu);
      });
      y.expect_rounded_once();
    }
}

TEST(Bf16Linear, ReturnsBiasForEmptySums) {
  CpuStream stream({.threads = 1});
  BothTypes x({2, 0}, 1), weight({3, 0}, 2), bias({3}, 3), y({2, 3}, 4);
  in_both_types([&]<class T>() {
    kernels::linear_forward(stream, x.in<T>(), weight.in<T>(), bias.in<T>(), y.out<T>(), false);
  });
  y.expect_rounded_once();
}

/// The arrays of a convolution in f32 and bf16.
struct Convolved {
  BothTypes x, filter, bias, dy, y, rectified, dx, dfilter;

  Convolved(CpuStream& stream, const ConvCase& c, GradMode mode)
      : x(c.x(), 1),
        filter(c.filter(), 2),
        bias({c.o}, 3),
        dy(c.y(), 4),
        y(c.y(), 5),
        rectified(c.y(), 6),
        dx(c.x(), 7),
        dfilter(c.filter(), 8) {
    Conv2dOptions with_relu = c.options();
    with_relu.relu = true;
    in_both_types([&]<class T>() {
      kernels::conv2d_forward(stream, x.in<T>(), filter.in<T>(), {}, y.out<T>(), c.options());
      kernels::conv2d_forward(stream, x.in<T>(), filter.in<T>(), bias.in<T>(), rectified.out<T>(), with_relu);
      kernels::conv2d_backward_data(stream, dy.in<T>(), filter.in<T>(), dx.grad<T>(mode), c.options());
      kernels::conv2d_backward_filter(stream, dy.in<T>(), x.in<T>(), dfilter.grad<T>(mode), c.options());
    });
  }

  /// `roundings` is the number of roundings to bf16: one, or two if the result is rounded before an addition.
  void expect_near(const ConvCase& c, int roundings) const {
    const auto tolerance = [&](std::int64_t terms) {
      // Sums of this many terms rarely exceed three times their standard deviation, sqrt(terms) / 3.
      const double rounding =
          testing::unit_roundoff<bfloat16>() * (std::sqrt(static_cast<double>(terms)) + 1);
      return 8 * testing::dot_tolerance<bfloat16>(terms) + (roundings - 1) * 2 * rounding;
    };
    y.expect_rounded_near(tolerance(c.kh * c.kw * c.i));
    rectified.expect_rounded_near(tolerance(c.kh * c.kw * c.i));
    dx.expect_rounded_near(tolerance(c.kh * c.kw * c.o));
    dfilter.expect_rounded_near(tolerance(c.n * c.oh() * c.ow()));
  }
};

/// Sets an environment variable, which a stream reads at its first convolution.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Environment() { ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

TEST_P(Bf16Nn, ConvolutionsOnF32Copies) {
  const Environment environment("CONVOY_ONEDNN_BF16", "off");
  for (const ConvCase& c : testing::kConvCases) {
    SCOPED_TRACE(::testing::Message() << c);
    Convolved(stream, c, GetParam()).expect_near(c, 1);
  }
}

TEST_P(Bf16Nn, ConvolutionsByOneDnn) {
  if (!kernels::onednn::computes_bf16())
    GTEST_SKIP() << "the processor has no AVX-512, which oneDNN needs for bf16";
  const Environment environment("CONVOY_ONEDNN_BF16", "on");
  for (const ConvCase& c : testing::kConvCases) {
    SCOPED_TRACE(::testing::Message() << c);
    Convolved(stream, c, GetParam()).expect_near(c, 2);
  }
}

TEST_P(Bf16Nn, EmptyConvolutions) {
  for (const ConvCase& c : {ConvCase{0, 4, 4, 3, 5, 3, 3, 1, 1}, ConvCase{2, 4, 4, 0, 5, 3, 3, 1, 1},
                            ConvCase{2, 4, 4, 3, 0, 3, 3, 1, 1}}) {
    SCOPED_TRACE(::testing::Message() << c);
    Convolved(stream, c, GetParam()).expect_near(c, 1);
  }
}

TEST(Bf16Convolution, RejectsUnknownSwitchValue) {
  const Environment environment("CONVOY_ONEDNN_BF16", "perhaps");
  CpuStream stream({.threads = 1});
  EXPECT_EQ(testing::message_of<UsageError>([&] {
              Convolved(stream, {1, 4, 4, 3, 5, 3, 3, 1, 1}, GradMode::overwrite);
            }),
            "CONVOY_ONEDNN_BF16: found 'perhaps', expected on, off or auto");
}

TEST_P(Bf16Nn, BatchNorms) {
  for (const testing::Fusion& fusion : testing::kFusions)
    for (const std::int64_t channels : {1, 21, 64}) {
      SCOPED_TRACE(::testing::Message() << fusion.text() << ", " << channels << " channels");
      Norm<bfloat16> half(67, channels);
      Norm<float> single = half.widened<float>();
      const DeviceContext cpu = DeviceContext::create_cpu({.threads = 2});
      forward(cpu, half, fusion);
      forward(cpu, single, fusion);
      testing::expect_rounded(half.y, single.y);
      testing::expect_same_bits(half.mean, single.mean);
      testing::expect_same_bits(half.inverse_std, single.inverse_std);
      testing::expect_same_bits(half.running_mean, single.running_mean);
      testing::expect_same_bits(half.running_var, single.running_var);
      single.y = half.y.to<float>();  // backward reads the signs of y
      backward(cpu, half, fusion, GetParam());
      backward(cpu, single, fusion, GetParam());
      testing::expect_rounded(half.dx, single.dx);
      testing::expect_rounded(half.dresidual, single.dresidual);
      testing::expect_same_bits(half.dgamma, single.dgamma);
      testing::expect_same_bits(half.dbeta, single.dbeta);
    }
}

TEST_P(Bf16Nn, SyncBatchNorms) {
  const testing::ShardEnds ends = {20, 20, 67};
  for (const testing::Fusion& fusion : testing::kFusions) {
    if (!fusion.training) continue;
    Norm<bfloat16> half(67, 21);
    Norm<float> single = half.widened<float>();
    const DeviceContext cpu = DeviceContext::create_cpu({.threads = 2});
    forward_in_shards(cpu, half, fusion, ends);
    forward_in_shards(cpu, single, fusion, ends);
    testing::expect_rounded(half.y, single.y);
    testing::expect_same_bits(half.mean, single.mean);
    single.y = half.y.to<float>();
    backward_in_shards(cpu, half, fusion, GetParam(), ends);
    backward_in_shards(cpu, single, fusion, GetParam(), ends);
    testing::expect_rounded(half.dx, single.dx);
    testing::expect_same_bits(half.dgamma, single.dgamma);
  }
}

}  // namespace
}  // namespace convoy

// Compares the batch norms within the convolution by tensor cores with the CPU in f64, and with the
// convolution and the batch norm as separate kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3.h"
#include "convoy/kernels/cuda/normalization/data_gradient.h"
#include "tests/kernels/conv2d_cases.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

namespace implicit_gemm = kernels::implicit_gemm;
using implicit_gemm::BlockPixels, implicit_gemm::InputNorm, implicit_gemm::Instruction;
using implicit_gemm::NormGradient, implicit_gemm::Variant;
using kernels::OutputStatistics;
using namespace testing;  // NOLINT: the fixture

constexpr double kUnit = 0x1p-24;  // the relative error of one rounding to f32
/// The roundings of a block's sum over rows: up to 16 rows of a thread, 4 of a warp in 2 steps, and 4 warps.
constexpr double kSumRoundings = 16 + 2 + 4;
constexpr BatchNormOptions kOptions{.momentum = 0.25, .activation = NormActivation::relu};

// One block that ends within an image; several blocks for pixels, whose last one has few, and for channels;
// pixels that are a multiple of a block; the widest rows; the fewest pixels.
const ConvCase kCases[] = {{3, 7, 5, 48, 64, 3, 3, 1, 1},
                           {5, 8, 13, 16, 128, 3, 3, 1, 1},
                           {4, 8, 8, 16, 64, 3, 3, 1, 1},
                           {1, 4, implicit_gemm::kMaxWidth, 16, 64, 3, 3, 1, 1},
                           {2, 1, 1, 16, 64, 3, 3, 1, 1}};

/// The same with input and output channels exchanged, for the gradient of the input.
ConvCase transposed(const ConvCase& c) { return {c.n, c.h, c.w, c.o, c.i, 3, 3, 1, 1}; }

CudaStream& stream_of(const DeviceContext& gpu) {
  return std::get<std::reference_wrapper<CudaStream>>(gpu.stream());
}

/// Returns the variants that the GPU has.
std::vector<Variant> variants_of(const CudaStream& stream) {
  const Variant small{BlockPixels::small, Instruction::wgmma}, large{BlockPixels::large, Instruction::wgmma};
  if (!implicit_gemm::has_wgmma(stream)) return {BlockPixels::small, BlockPixels::large};
  return {BlockPixels::small, BlockPixels::large, small, large};
}

double max_abs(const auto& array) {
  double result = 0;
  for (const auto element : array) result = std::max(result, std::abs(value_of(element)));
  return result;
}

/// The [C] arrays of a batch norm after its forward pass.
template <class C>
struct Statistics {
  Array<C> mean, inverse_std, coefficients, running_mean, running_var;
};

/// The [C] arrays of a batch norm on a GPU.
struct GpuNorm {
  Array<float> gamma, beta, running;
  DeviceArray<float> gpu_gamma, gpu_beta, mean, inverse_std, coefficients, running_mean, running_var;

  GpuNorm(const DeviceContext& gpu, std::int64_t channels)
      : gamma(Array<float>::random({channels}, 11)),
        beta(Array<float>::random({channels}, 12)),
        running(Array<float>::random({channels}, 13)),
        gpu_gamma(gpu, gamma),
        gpu_beta(gpu, beta),
        mean(gpu, Shape{channels}),
        inverse_std(gpu, Shape{channels}),
        coefficients(gpu, Shape{2, channels}),
        running_mean(gpu, running),
        running_var(gpu, running) {
    // Channels in which about half of the positive values are rounded to 0, in f16 and in bf16.
    gamma[0] = 3e-8F, gamma[1] = 3e-41F;
    beta[0] = beta[1] = 0;
    copy_bytes(Device::cpu(), gamma.view(), gpu, gpu_gamma.view());
    copy_bytes(Device::cpu(), beta.view(), gpu, gpu_beta.view());
  }

  OutputStatistics output() const {
    return {gpu_gamma.view(),    gpu_beta.view(),     mean.view(),        inverse_std.view(),
            coefficients.view(), running_mean.view(), running_var.view(), kOptions};
  }
  InputNorm input() const { return {mean.view(), coefficients.view()}; }
  Statistics<float> values() const {
    return {mean.values(), inverse_std.values(), coefficients.values(), running_mean.values(),
            running_var.values()};
  }
  /// Normalizes x by the separate kernels.
  void forward(CudaStream& stream, const ConstView& x, const View& u) const {
    kernels::batch_norm_forward(stream, x, gpu_gamma.view(), gpu_beta.view(), {}, u, mean.view(),
                                inverse_std.view(), coefficients.view(), running_mean.view(),
                                running_var.view(), kOptions);
  }
  /// Returns the statistics of y, computed by the CPU in f64.
  Statistics<double> expected(const Array<double>& y) const {
    const Shape channels = gamma.shape();
    Statistics<double> s{Array<double>(channels), Array<double>(channels), Array<double>({2, channels[0]}),
                         running.to<double>(), running.to<double>()};
    Array<double> unused(y.shape());
    CpuStream cpu({.threads = 1});
    kernels::batch_norm_forward(cpu, y.view(), gamma.to<double>().view(), beta.to<double>().view(), {},
                                unused.view(), s.mean.view(), s.inverse_std.view(), s.coefficients.view(),
                                s.running_mean.view(), s.running_var.view(), kOptions);
    return s;
  }
};

/// The error bounds of the statistics of a channel.
struct Bounds {
  double mean;         // absolute
  double inverse_std;  // relative

  /// `largest`: the maximum |y|. A wrong mean of a block adds its square to the variance.
  Bounds(double largest, double inverse)
      : mean((kSumRoundings + 2) * kUnit * largest),
        inverse_std((kSumRoundings + 4) * kUnit + mean * mean * inverse * inverse) {}
};

void expect_statistics_near(const Statistics<float>& found, const Statistics<double>& expected,
                            double largest) {
  for (std::size_t c = 0; c < expected.mean.size(); ++c) {
    SCOPED_TRACE("channel " + std::to_string(c));
    const double inverse = expected.inverse_std[c], factor = expected.coefficients[c];
    const Bounds bounds(largest, inverse);
    ASSERT_NEAR(found.mean[c], expected.mean[c], bounds.mean);
    ASSERT_NEAR(found.inverse_std[c], inverse, bounds.inverse_std * inverse);
    ASSERT_NEAR(found.coefficients[c], factor, bounds.inverse_std * std::abs(factor) + 0x1p-149);
    const std::size_t offset = expected.mean.size() + c;
    ASSERT_NEAR(found.coefficients[offset], expected.coefficients[offset],
                2 * bounds.mean * std::abs(factor) + 2 * kUnit);
    ASSERT_NEAR(found.running_mean[c], expected.running_mean[c], bounds.mean + 2 * kUnit);
    const double var = 1 / (inverse * inverse), n_over_n_minus_1 = 2;
    ASSERT_NEAR(found.running_var[c], expected.running_var[c],
                n_over_n_minus_1 * 2 * bounds.inverse_std * var + 2 * kUnit * (1 + n_over_n_minus_1 * var));
  }
}

void expect_same_statistics(const Statistics<float>& a, const Statistics<float>& b) {
  expect_same_bits(a.mean, b.mean);
  expect_same_bits(a.inverse_std, b.inverse_std);
  expect_same_bits(a.coefficients, b.coefficients);
  expect_same_bits(a.running_mean, b.running_mean);
  expect_same_bits(a.running_var, b.running_var);
}

template <class T>
class CudaConv2d3x3Norm : public testing::GpuTest {
 protected:
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  CudaStream& stream = stream_of(gpu);

  /// Returns y of the plain convolution, with blocks of either size.
  Array<T> plain(const ConvCase& c, const ConstView& x, const ConstView& filter) {
    const DeviceArray<T> y(gpu, c.y());
    implicit_gemm::forward(stream, x, filter, y.view(), BlockPixels::small);
    return y.values();
  }
  void compare_statistics(const ConvCase& c, std::span<const Variant> variants);
  void compare_gradients(const ConvCase& c, std::span<const Variant> variants);
};

using Types = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(CudaConv2d3x3Norm, Types);

/// Compares the statistics with those of the CPU in f64 and of the separate kernels.
template <class T>
void CudaConv2d3x3Norm<T>::compare_statistics(const ConvCase& c, std::span<const Variant> variants) {
  SCOPED_TRACE(::testing::Message() << c);
  const DeviceArray<T> x(this->gpu, Array<T>::random(c.x(), 1)),
      filter(this->gpu, Array<T>::random(c.filter(), 2)), y(this->gpu, c.y());
  const Array<T> plain = this->plain(c, x.view(), filter.view());
  const DeviceArray<T> gpu_plain(this->gpu, plain);
  const GpuNorm separate(this->gpu, c.o);
  separate.forward(this->stream, gpu_plain.view(), y.view());
  for (const Variant variant : variants) {
    std::optional<Statistics<float>> first;
    this->for_each_order([&] {
      const GpuNorm norm(this->gpu, c.o);
      implicit_gemm::forward(this->stream, x.view(), {}, filter.view(), y.view(), norm.output(), variant);
      expect_same_bits(y.values(), plain);
      const Statistics<float> found = norm.values();
      expect_statistics_near(found, norm.expected(plain.template to<double>()), max_abs(plain));
      if (!first.has_value()) first.emplace(found);
      expect_same_statistics(found, *first);
    });
    // The separate kernel rounds about as often.
    const Statistics<float> other = separate.values();
    expect_statistics_near(
        *first,
        {other.mean.to<double>(), other.inverse_std.to<double>(), other.coefficients.to<double>(),
         other.running_mean.to<double>(), other.running_var.to<double>()},
        2 * max_abs(plain));
  }
}

TYPED_TEST(CudaConv2d3x3Norm, StatisticsAreThoseOfTheResult) {
  for (const ConvCase& c : kCases) this->compare_statistics(c, variants_of(this->stream));
}

/// Returns the variance of a channel by E[x^2] - E[x]^2 in f32.
float naive_variance(const Array<double>& x, std::int64_t channels, std::int64_t channel) {
  float sum = 0, squares = 0, n = 0;
  for (auto e = static_cast<std::size_t>(channel); e < x.size(); e += static_cast<std::size_t>(channels)) {
    const auto value = static_cast<float>(x[e]);
    sum += value, squares += value * value, ++n;
  }
  return squares / n - sum / n * (sum / n);
}

// The filters copy the input, whose values are close to the largest integers of T. Channel 0 is constant, and
// the mean of channel 1 changes between blocks.
TYPED_TEST(CudaConv2d3x3Norm, StatisticsDoNotCancelForLargeMeans) {
  using T = TypeParam;
  const ConvCase c{1, 13, 47, 64, 64, 3, 3, 1, 1};  // 611 pixels
  const double largest = dtype_of<T> == DType::f16 ? 2047 : 255;
  Array<double> x(c.x());
  std::mt19937 words(1);
  for (std::size_t e = 0; e < x.size(); ++e) x[e] = largest - static_cast<double>(words() >> 30);
  for (std::size_t e = 0; e < x.size(); e += 64) {
    x[e] = largest;
    x[e + 1] = largest - static_cast<double>(e / 64 / 256);
  }
  Array<T> filter(c.filter());
  for (std::size_t o = 0; o < 64; ++o) filter[(o * 9 + 4) * 64 + o] = static_cast<T>(1);
  const DeviceArray<T> gpu_x(this->gpu, x.to<T>()), gpu_filter(this->gpu, filter), y(this->gpu, c.y());
  for (const Variant variant : variants_of(this->stream)) {
    const GpuNorm norm(this->gpu, c.o);
    implicit_gemm::forward(this->stream, gpu_x.view(), {}, gpu_filter.view(), y.view(), norm.output(),
                           variant);
    expect_same_bits(y.values(), x.to<T>());
    const Statistics<float> found = norm.values();
    const Statistics<double> expected = norm.expected(x);
    expect_statistics_near(found, expected, largest);
    EXPECT_EQ(found.mean[0], static_cast<float>(largest));
    EXPECT_EQ(found.inverse_std[0], static_cast<float>(1 / std::sqrt(kOptions.epsilon)));
    // The data shows that a formula cancels: its error is much larger than the bound.
    for (const std::size_t channel : {std::size_t{2}, std::size_t{63}}) {
      const double inverse = expected.inverse_std[channel], var = 1 / (inverse * inverse) - kOptions.epsilon;
      const double bound = 2 * Bounds(largest, inverse).inverse_std * var;
      EXPECT_GT(std::abs(naive_variance(x, 64, static_cast<std::int64_t>(channel)) - var), 10 * bound);
    }
  }
}

/// Computes u = max(normalized(x), 0) on the CPU, with the roundings of a GPU.
template <class T>
Array<T> normalized(const Array<T>& x, const Statistics<float>& s) {
  Array<T> u(x.shape());
  const std::size_t channels = s.mean.size();
  for (std::size_t e = 0; e < x.size(); ++e) {
    const std::size_t c = e % channels;
    const float value =
        std::fma(static_cast<float>(x[e]) - s.mean[c], s.coefficients[c], s.coefficients[channels + c]);
    u[e] = static_cast<T>(value < 0 ? 0.0F : value);
  }
  return u;
}

TYPED_TEST(CudaConv2d3x3Norm, InputIsNormalizedAsBySeparateKernels) {
  using T = TypeParam;
  for (const ConvCase& c : kCases)
    for (const bool has_nan : {false, true}) {
      if (has_nan && c.i != 48) continue;  // one case is enough
      SCOPED_TRACE(::testing::Message() << c << (has_nan ? ", NaN" : ""));
      Array<T> x = Array<T>::random(c.x(), 1);
      const auto filter = Array<T>::random(c.filter(), 2);
      const GpuNorm before(this->gpu, c.i);
      const DeviceArray<T> gpu_filter(this->gpu, filter), gpu_u(this->gpu, c.x()), y(this->gpu, c.y());
      before.forward(this->stream, DeviceArray<T>(this->gpu, x).view(), gpu_u.view());
      Array<T> u = normalized(x, before.values());
      expect_same_bits(gpu_u.values(), u);
      if (has_nan) x[0] = u[0] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
      const DeviceArray<T> gpu_x(this->gpu, x), separate_u(this->gpu, u);
      const Array<T> separate = this->plain(c, separate_u.view(), gpu_filter.view());
      if (!has_nan) {
        Array<double> expected(c.y());
        CpuStream cpu({.threads = 1});
        kernels::conv2d_forward_reference(cpu, u.template to<double>().view(),
                                          filter.template to<double>().view(), {}, expected.view(),
                                          c.options());
        expect_rounded_near(separate, expected, dot_tolerance<T>(9 * c.i) * std::max(1.0, max_abs(u)));
      }
      for (const Variant variant : variants_of(this->stream)) {
        implicit_gemm::forward(this->stream, gpu_x.view(), before.input(), gpu_filter.view(), y.view(), {},
                               variant);
        expect_same_bits(y.values(), separate);
        const GpuNorm without(this->gpu, c.o);
        implicit_gemm::forward(this->stream, separate_u.view(), {}, gpu_filter.view(), y.view(),
                               without.output(), variant);
        const Statistics<float> statistics = without.values();
        this->for_each_order([&] {
          const GpuNorm with_input(this->gpu, c.o);
          implicit_gemm::forward(this->stream, gpu_x.view(), before.input(), gpu_filter.view(), y.view(),
                                 with_input.output(), variant);
          expect_same_bits(y.values(), separate);
          expect_same_statistics(with_input.values(), statistics);
        });
      }
    }
}

/// Compares the gradients of the convolution and of the batch norm before it with those of the CPU in f64 and
/// of the separate kernels. These store du, the gradient of u.
template <class T>
void CudaConv2d3x3Norm<T>::compare_gradients(const ConvCase& c, std::span<const Variant> variants) {
  SCOPED_TRACE(::testing::Message() << c);
  const auto x = Array<T>::random(c.x(), 1), dy = Array<T>::random(c.y(), 3),
             filter = Array<T>::random(c.filter(), 2);
  const DeviceArray<T> gpu_x(this->gpu, x), gpu_dy(this->gpu, dy), gpu_filter(this->gpu, filter),
      gpu_u(this->gpu, c.x()), du(this->gpu, c.x()), dx(this->gpu, c.x());
  const GpuNorm norm(this->gpu, c.i);
  norm.forward(this->stream, gpu_x.view(), gpu_u.view());
  const Statistics<float> s = norm.values();
  const Array<T> u = gpu_u.values();
  implicit_gemm::backward_data(this->stream, gpu_dy.view(), gpu_filter.view(), du.grad(), BlockPixels::small);
  Array<T> g = du.values();
  for (std::size_t e = 0; e < g.size(); ++e)
    if (!(value_of(u[e]) > 0)) g[e] = T{};

  const auto previous = Array<float>::random({c.i}, 5);
  for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
    // The CPU in f64, from the rounded g.
    Array<double> expected_dx(c.x()), expected_dgamma = previous.to<double>(),
                                      expected_dbeta = expected_dgamma;
    CpuStream cpu({.threads = 1});
    kernels::batch_norm_backward(cpu, g.template to<double>().view(), x.template to<double>().view(), {},
                                 norm.gamma.to<double>().view(), s.mean.to<double>().view(),
                                 s.inverse_std.to<double>().view(), {}, expected_dx.grad(), {},
                                 expected_dgamma.grad(mode), expected_dbeta.grad(mode), {});
    // The separate kernels.
    const DeviceArray<float> dgamma(this->gpu, previous), dbeta(this->gpu, previous);
    kernels::batch_norm_backward(this->stream, du.view(), gpu_x.view(), {}, norm.gpu_gamma.view(),
                                 norm.mean.view(), norm.inverse_std.view(), norm.coefficients.view(),
                                 dx.grad(), {}, dgamma.grad(mode), dbeta.grad(mode), kOptions);
    const Array<T> separate_dx = dx.values();
    const Array<float> separate_dgamma = dgamma.values(), separate_dbeta = dbeta.values();

    // A sum over all rows has at most this error in f32: that of the terms, and of the sums of blocks.
    const double rows = static_cast<double>(c.n * c.h * c.w), largest = max_abs(g);
    const double sum_error = kSumRoundings * kUnit * rows * largest;
    const double deviation = max_abs(x) + max_abs(s.mean), inverse = max_abs(s.inverse_std);
    const double dgamma_error = (sum_error + 3 * kUnit * rows * largest) * deviation * inverse;
    const double result = kUnit * (1 + max_abs(expected_dgamma) + max_abs(expected_dbeta));
    const double dx_error = inverse * (sum_error / rows + deviation * inverse * dgamma_error / rows +
                                       8 * kUnit * largest * (2 + deviation * deviation * inverse * inverse));
    for (const Variant variant : variants) {
      testing::Repeats<float> dgammas, dbetas, all_factors;
      this->for_each_order([&] {
        const DeviceArray<T> found(this->gpu, c.x());
        const DeviceArray<float> found_dgamma(this->gpu, previous), found_dbeta(this->gpu, previous),
            factors(this->gpu, Shape{3, c.i});
        implicit_gemm::backward_data(
            this->stream, gpu_dy.view(), gpu_filter.view(), found.view(),
            NormGradient{gpu_x.view(), norm.gpu_gamma.view(), norm.mean.view(), norm.inverse_std.view(),
                         norm.coefficients.view(), found_dgamma.grad(mode), found_dbeta.grad(mode),
                         factors.view()},
            variant);
        expect_same_bits(found.values(), g);
        expect_near(found_dbeta.values(), expected_dbeta, sum_error + result);
        expect_near(found_dgamma.values(), expected_dgamma, dgamma_error + result);
        expect_near(found_dbeta.values(), separate_dbeta, 2 * (sum_error + result));
        expect_near(found_dgamma.values(), separate_dgamma, 2 * (dgamma_error + result));
        dgammas.expect_same(found_dgamma.values());
        dbetas.expect_same(found_dbeta.values());
        all_factors.expect_same(factors.values());
        kernels::batch_norm_data_gradient(this->stream, found.view(), gpu_x.view(), norm.mean.view(),
                                          factors.view(), dx.grad());
        expect_rounded_near(dx.values(), expected_dx, dx_error);
        expect_rounded_near(dx.values(), separate_dx, 2 * dx_error);
      });
    }
  }
}

TYPED_TEST(CudaConv2d3x3Norm, GradientsAreThoseOfSeparateKernels) {
  for (const ConvCase& c : kCases) this->compare_gradients(transposed(c), variants_of(this->stream));
}

// 34 row blocks in 6 groups; the last group has 4, and the last row block one pixel.
TYPED_TEST(CudaConv2d3x3Norm, CombinesManyBlocksInGroups) {
  const ConvCase many{1, 65, 65, 16, 64, 3, 3, 1, 1};
  const Variant kSmall[] = {BlockPixels::small};
  this->compare_statistics(many, kSmall);
  this->compare_gradients(transposed(many), kSmall);
}

TYPED_TEST(CudaConv2d3x3Norm, ComputesWithoutWhatIsUnwanted) {
  using T = TypeParam;
  const ConvCase c = kCases[0];
  const DeviceArray<T> x(this->gpu, Array<T>::random(c.x(), 1)),
      filter(this->gpu, Array<T>::random(c.filter(), 2)), y(this->gpu, c.y());
  implicit_gemm::forward(this->stream, x.view(), {}, filter.view(), y.view(), {}, BlockPixels::small);
  expect_same_bits(y.values(), this->plain(c, x.view(), filter.view()));

  const ConvCase back = transposed(c);
  const DeviceArray<T> dy(this->gpu, Array<T>::random(back.y(), 1)),
      data(this->gpu, Array<T>::random(back.x(), 2)), g(this->gpu, back.x()), u(this->gpu, back.x()),
      back_filter(this->gpu, Array<T>::random(back.filter(), 2));
  const GpuNorm norm(this->gpu, back.i);
  norm.forward(this->stream, data.view(), u.view());
  const DeviceArray<float> dbeta(this->gpu, Shape{back.i}), only(this->gpu, Shape{back.i}),
      factors(this->gpu, Shape{3, back.i});
  NormGradient gradient{
      data.view(), norm.gpu_gamma.view(), norm.mean.view(), norm.inverse_std.view(), norm.coefficients.view(),
      {},          only.grad(),           factors.view()};
  implicit_gemm::backward_data(this->stream, dy.view(), back_filter.view(), g.view(), gradient,
                               BlockPixels::small);
  const DeviceArray<float> dgamma(this->gpu, Shape{back.i});
  gradient.dgamma = dgamma.grad(), gradient.dbeta = dbeta.grad();
  implicit_gemm::backward_data(this->stream, dy.view(), back_filter.view(), g.view(), gradient,
                               BlockPixels::small);
  expect_same_bits(only.values(), dbeta.values());
}

TYPED_TEST(CudaConv2d3x3Norm, EmptyBatchHasZeroStatisticsAndGradients) {
  using T = TypeParam;
  const DeviceArray<T> none(this->gpu, Shape{0, 4, 4, 64}), filter(this->gpu, Shape{64, 3, 3, 64});
  const GpuNorm norm(this->gpu, 64);
  const Array<float> zeros({64});
  implicit_gemm::forward(this->stream, none.view(), {}, filter.view(), none.view(), norm.output(),
                         BlockPixels::small);
  const Statistics<float> found = norm.values();
  expect_same_bits(found.mean, zeros);
  expect_same_bits(found.inverse_std, zeros);
  expect_same_bits(found.running_mean, norm.running);
  const DeviceArray<float> dgamma(this->gpu, Shape{64}), dbeta(this->gpu, norm.running),
      factors(this->gpu, Shape{3, 64});
  implicit_gemm::backward_data(
      this->stream, none.view(), filter.view(), none.view(),
      NormGradient{none.view(), norm.gpu_gamma.view(), norm.mean.view(), norm.inverse_std.view(),
                   norm.coefficients.view(), dgamma.grad(), dbeta.grad(GradMode::accumulate), factors.view()},
      BlockPixels::small);
  expect_same_bits(dgamma.values(), zeros);
  expect_same_bits(dbeta.values(), norm.running);
}

}  // namespace
}  // namespace convoy

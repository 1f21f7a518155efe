// Tests of the choice between the fused and the separate kernels of kernels/norm_conv2d.h on a GPU: both give the
// same results up to rounding, in both gradient modes, and arrays at any address are accepted.
#include <cmath>

#include "convoy/kernels/norm_conv2d.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy::testing {
namespace {

using CudaNormConv2d = GpuTest;
using kernels::InputNorm;

constexpr std::int64_t kChannels = 64;
const Shape kImages{3, 5, 7, kChannels};  // 105 pixels: less than a block, which ends within an image
const Shape kFilter{kChannels, 3, 3, kChannels};
constexpr Conv2dOptions kOptions{.padding = 1};

/// All arrays that the functions write.
struct Results {
  Array<bfloat16> y, dfilter, dx;
  Array<float> mean, inverse_std, coefficients, running_mean, running_var, dgamma, dbeta;
};

/// Calls the functions on random arrays. The addresses of x are `offset` elements after aligned ones.
Results compute(const DeviceContext& gpu, GradMode mode, bool has_norm, std::size_t offset = 0) {
  const auto random = [&](const Shape& shape, std::uint64_t seed, std::size_t at = 0) {
    return DeviceArray<bfloat16>(gpu, Array<bfloat16>::random(shape, seed), at);
  };
  const auto channels = [&](std::uint64_t seed, const Shape& shape = {kChannels}) {
    return DeviceArray<float>(gpu, Array<float>::random(shape, seed));
  };
  const auto x = random(kImages, 1, offset), filter = random(kFilter, 2), dy = random(kImages, 3);
  const auto y = random(kImages, 4), dx = random(kImages, 5), dfilter = random(kFilter, 6);
  const auto gamma = channels(7), beta = channels(8), next_gamma = channels(9), next_beta = channels(10);
  const auto mean = channels(11), inverse_std = channels(12), coefficients = channels(13, {2, kChannels});
  const auto next_mean = channels(14), next_inverse_std = channels(15),
             next_coefficients = channels(16, {2, kChannels}), running_mean = channels(17),
             running_var = channels(18), dgamma = channels(19), dbeta = channels(20);
  on(gpu.stream(), [&](auto& s) {
    kernels::batch_norm_statistics(s, x.view(), gamma.view(), beta.view(), mean.view(), inverse_std.view(),
                                   coefficients.view(), running_mean.view(), running_var.view(), {});
    const InputNorm norm = has_norm
                               ? InputNorm{gamma.view(), mean.view(), inverse_std.view(), coefficients.view()}
                               : InputNorm{};
    kernels::norm_conv2d_forward(s, x.view(), norm, filter.view(), y.view(),
                                 {next_gamma.view(),
                                  next_beta.view(),
                                  next_mean.view(),
                                  next_inverse_std.view(),
                                  next_coefficients.view(),
                                  running_mean.view(),
                                  running_var.view(),
                                  {}},
                                 kOptions);
    kernels::norm_conv2d_backward_filter(s, dy.view(), x.view(), norm, dfilter.grad(mode), kOptions);
    if (!has_norm) return;
    kernels::norm_conv2d_backward_norm(s, dy.view(), filter.view(), x.view(), norm, dx.grad(mode),
                                       dgamma.grad(mode), dbeta.grad(mode), kOptions);
    // Without dx, and without the others: must write nothing else.
    kernels::norm_conv2d_backward_norm(s, dy.view(), filter.view(), x.view(), norm, {}, dgamma.grad(mode), {},
                                       kOptions);
    kernels::norm_conv2d_backward_norm(s, dy.view(), filter.view(), x.view(), norm, dx.grad(mode), {}, {},
                                       kOptions);
  });
  return {y.values(),
          dfilter.values(),
          dx.values(),
          next_mean.values(),
          next_inverse_std.values(),
          next_coefficients.values(),
          running_mean.values(),
          running_var.values(),
          dgamma.values(),
          dbeta.values()};
}

/// Expects a distance of less than a few roundings of bf16, relative to the norm.
template <class T>
void expect_close(const Array<T>& found, const Array<T>& expected, const char* what) {
  double difference = 0, norm = 0;
  for (std::size_t e = 0; e < expected.size(); ++e) {
    difference += std::pow(value_of(found[e]) - value_of(expected[e]), 2);
    norm += std::pow(value_of(expected[e]), 2);
  }
  EXPECT_LE(std::sqrt(difference), 0x1p-7 * std::sqrt(norm)) << what;  // false for NaN
}

void expect_close(const Results& found, const Results& expected) {
  expect_close(found.y, expected.y, "y");
  expect_close(found.dfilter, expected.dfilter, "dfilter");
  expect_close(found.dx, expected.dx, "dx");
  expect_close(found.mean, expected.mean, "mean");
  expect_close(found.inverse_std, expected.inverse_std, "inverse_std");
  expect_close(found.coefficients, expected.coefficients, "coefficients");
  expect_close(found.running_mean, expected.running_mean, "running_mean");
  expect_close(found.running_var, expected.running_var, "running_var");
  expect_close(found.dgamma, expected.dgamma, "dgamma");
  expect_close(found.dbeta, expected.dbeta, "dbeta");
}

template <class T>
bool is_equal(const Array<T>& a, const Array<T>& b) {
  for (std::size_t e = 0; e < a.size(); ++e)
    if (value_of(a[e]) != value_of(b[e])) return false;
  return true;
}

TEST_F(CudaNormConv2d, FusedMatchesSeparateInBothModes) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  gpu.set_autotune(false);
  const auto choose = [&](const char* way) {
    for (const char* problem : {"norm conv2d", "conv2d statistics"})
      gpu.algorithm_cache().insert(std::string(problem) + " bf16 n3 5x7x64 k64 3x3 s1 p1", way);
  };
  for (const bool has_norm : {true, false})
    for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
      SCOPED_TRACE(std::string(has_norm ? "norm" : "no norm") +
                   (mode == GradMode::accumulate ? ", adding" : ""));
      choose("separate");
      const Results separate = compute(gpu, mode, has_norm);
      choose("fused");
      const Results fused = compute(gpu, mode, has_norm);
      expect_close(fused, separate);
      EXPECT_FALSE(is_equal(fused.mean, separate.mean)) << "the sums have another order";
      EXPECT_EQ(is_equal(fused.dgamma, separate.dgamma), !has_norm);
      if (!has_norm) {
        EXPECT_TRUE(is_equal(fused.dfilter, separate.dfilter)) << "nothing to fuse";
      }
      // At an address that the fused kernels do not accept, the others run.
      const Results moved = compute(gpu, mode, has_norm, /*offset=*/1);
      expect_close(moved.y, separate.y, "y");
      expect_close(moved.dx, separate.dx, "dx");
      if (!testing::gpus_are_emulated()) continue;  // cuDNN has other engines for other alignments
      EXPECT_TRUE(is_equal(moved.y, separate.y));
      EXPECT_TRUE(is_equal(moved.dx, separate.dx));
    }
}

}  // namespace
}  // namespace convoy::testing

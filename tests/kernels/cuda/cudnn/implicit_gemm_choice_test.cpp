// Tests of the choice between cuDNN's plans and the kernels of kernels/cuda/implicit_gemm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "emulator/runtime/emulator.h"
#include "tests/kernels/cuda/cudnn/cudnn_fixture.h"

namespace convoy {
namespace {

using namespace testing;    // NOLINT: the fixture
using namespace ::testing;  // NOLINT: matchers

class ImplicitGemmChoice : public CudnnConv2d {};

CudaStream& stream_of(const Convolution<bfloat16>& a) {
  return std::get<std::reference_wrapper<CudaStream>>(a.gpu.stream());
}

/// Returns the result of kernels/cuda/implicit_gemm.
Array<bfloat16> implicit_gemm_of(const Convolution<bfloat16>& a) {
  const DeviceArray<bfloat16> y(a.gpu, a.shape.y());
  kernels::implicit_gemm::forward(stream_of(a), a.x.view(), a.filter.view(), y.view());
  return y.values();
}

TEST_F(ImplicitGemmChoice, UsesStoredKernel) {
  Convolution<bfloat16> own({}, kWide);
  own.store(kForwardWide, "implicit_gemm");
  own.forward();
  EXPECT_THAT(runs_by_engine(), IsEmpty());
  expect_same_bits(own.y.values(), implicit_gemm_of(own));

  Convolution<bfloat16> unknown({}, kWide);
  unknown.gpu.set_autotune(false);
  unknown.store(kForwardWide, "implicit_gemm 256 wgmma");  // an entry of a previous version
  unknown.forward();
  EXPECT_THAT(runs_by_engine(), SizeIs(1));
  // The kernel does not add a bias.
  Convolution<bfloat16> biased({}, kWide);
  biased.gpu.set_autotune(false);
  biased.store(std::string(kForwardWide) + " bias", "implicit_gemm");
  biased.forward(true);
  EXPECT_THAT(runs_by_engine(), SizeIs(1));
  // A GPU of another kind than Hopper has no instruction for it.
  emulator::Settings ampere = emulator::settings();
  ampere.capability = 80;
  const emulator::ScopedSettings settings(ampere);
  Convolution<bfloat16> other({}, kWide);
  other.gpu.set_autotune(false);
  other.store(kForwardWide, "implicit_gemm");
  other.forward();
  EXPECT_THAT(runs_by_engine(), SizeIs(1));
}

TEST_F(ImplicitGemmChoice, TimesKernels) {
  for (const double cudnn_ms : {1e-6, 1e6}) {
    const auto times = with([&](auto& cudnn) {
      for (auto& [index, ms] : cudnn.execution_ms) ms = cudnn_ms;
    });
    Convolution<bfloat16> a({}, kWide);
    stream_of(a).local<kernels::implicit_gemm::MinimumFlops>().value = 1;
    a.forward();
    EXPECT_THAT(a.gpu.algorithm_cache().find(kForwardWide),
                Optional(StartsWith(cudnn_ms < 1 ? "engine " : "implicit_gemm")));
    if (cudnn_ms > 1) expect_same_bits(a.y.values(), implicit_gemm_of(a));
  }
}

TEST_F(ImplicitGemmChoice, UsesOnlyTheChosenAlgorithms) {
  for (const bool deterministic : {false, true}) {
    Convolution<bfloat16> own({.deterministic = deterministic, .convolutions = Convolutions::implicit_gemm},
                              kWide);
    own.forward();
    EXPECT_THAT(runs_by_engine(), IsEmpty());
    EXPECT_EQ(own.gpu.algorithm_cache().size(), 0u);
    expect_same_bits(own.y.values(), implicit_gemm_of(own));
  }
  Convolution<bfloat16> unsupported({.convolutions = Convolutions::implicit_gemm});
  unsupported.gpu.set_autotune(false);
  unsupported.forward();
  EXPECT_THAT(runs_by_engine(), SizeIs(1));

  Convolution<bfloat16> cudnn({.convolutions = Convolutions::cudnn}, kWide);
  cudnn.store(kForwardWide, "implicit_gemm");
  cudnn.gpu.set_autotune(false);
  cudnn.forward();
  EXPECT_THAT(runs_by_engine(), SizeIs(1));
}

// Images have fewer channels than the tensor cores multiply at a time. Zeros take the place of the others.
TEST_F(ImplicitGemmChoice, PadsTheChannelsOfImages) {
  const ConvCase images{2, 6, 6, 3, 64, 3, 3, 1, 1};
  Convolution<bfloat16> own({.convolutions = Convolutions::implicit_gemm}, images);
  own.gpu.set_autotune(false);
  own.forward();
  EXPECT_THAT(runs_by_engine(), IsEmpty());
  Convolution<bfloat16> cudnn({.convolutions = Convolutions::cudnn}, images);
  cudnn.gpu.set_autotune(false);
  cudnn.forward();
  EXPECT_THAT(runs_by_engine(), SizeIs(1));
  const auto expected = cudnn.y.values(), found = own.y.values();
  for (std::size_t e = 0; e < expected.size(); ++e)  // both round a sum of 27 products once
    EXPECT_NEAR(value_of(found[e]), value_of(expected[e]), 0x1p-7 * std::abs(value_of(expected[e])) + 1e-5)
        << e;
}

// cuDNN's kernels for Hopper want units of 32 channels. Zeros take the place of the others.
TEST_F(ImplicitGemmChoice, ComputesWithPaddedCopies) {
  const ConvCase narrow{2, 6, 6, 24, 64, 3, 3, 1, 1};
  const auto dy = Array<bfloat16>::random(narrow.y(), 5);
  const auto results = [&](Convolution<bfloat16>& a) {
    a.gpu.set_autotune(false);
    const DeviceArray<bfloat16> of_y(a.gpu, dy), dx(a.gpu, narrow.x()), dfilter(a.gpu, narrow.filter());
    a.forward();
    kernels::conv2d_backward_data(stream_of(a), of_y.view(), a.filter.view(), dx.grad(), narrow.options());
    kernels::conv2d_backward_filter(stream_of(a), of_y.view(), a.x.view(), dfilter.grad(), narrow.options());
    return std::array{a.y.values(), dx.values(), dfilter.values()};
  };
  Convolution<bfloat16> padded({}, narrow), plain({}, narrow);
  for (const char* const direction : {"forward", "backward data", "backward filter"})
    padded.store(std::string("conv2d ") + direction + " bf16 n2 6x6x24 k64 3x3 s1 p1", "padded");
  const auto found = results(padded), expected = results(plain);
  for (std::size_t i = 0; i < found.size(); ++i)
    for (std::size_t e = 0; e < expected[i].size(); ++e)  // both round a sum of the same products once
      ASSERT_NEAR(value_of(found[i][e]), value_of(expected[i][e]),
                  0x1p-7 * std::abs(value_of(expected[i][e])) + 1e-5)
          << i << ", " << e;
}

// Time decides, and only where the copies are not much larger.
TEST_F(ImplicitGemmChoice, TimesPaddingToUnitsOfChannels) {
  for (const std::int64_t channels : {3, 24, 16, 32}) {
    const ConvCase sizes{2, 6, 6, channels, 64, 3, 3, 1, 1};
    Convolution<bfloat16> a({.convolutions = Convolutions::cudnn}, sizes);
    stream_of(a).local<kernels::implicit_gemm::MinimumFlops>().value = 1;
    a.forward();
    // With 3 or 24 channels, also the problem of the copies.
    EXPECT_EQ(a.gpu.algorithm_cache().size(), channels == 3 || channels == 24 ? 2u : 1u) << channels;
  }
}

// The copies with more channels need memory.
TEST_F(ImplicitGemmChoice, LeavesOutKernelsWithoutMemory) {
  const auto slow = with([](auto& cudnn) {
    for (auto& [index, ms] : cudnn.execution_ms) ms = 1e6;
  });
  Convolution<bfloat16> a({}, {2, 6, 6, 3, 64, 3, 3, 1, 1});
  stream_of(a).local<kernels::implicit_gemm::MinimumFlops>().value = 1;
  const std::string key = "conv2d forward bf16 n2 6x6x3 k64 3x3 s1 p1";
  {
    emulator::Settings full = emulator::settings();
    full.memory_bytes = 1;
    const emulator::ScopedSettings settings(full);
    a.forward();
  }
  EXPECT_THAT(a.gpu.algorithm_cache().find(key), Optional(StartsWith("engine ")));
  Convolution<bfloat16> b({}, a.shape);
  stream_of(b).local<kernels::implicit_gemm::MinimumFlops>().value = 1;
  b.forward();
  EXPECT_EQ(b.gpu.algorithm_cache().find(key), "padded");
  EXPECT_EQ(b.gpu.algorithm_cache().find("conv2d forward bf16 n2 6x6x16 k64 3x3 s1 p1"), "implicit_gemm");
}

// A launch takes longer than these, by any algorithm.
TEST_F(ImplicitGemmChoice, DoesNotTimeKernelsForSmallProblems) {
  const auto slow = with([](auto& cudnn) {
    for (auto& [index, ms] : cudnn.execution_ms) ms = 1e6;
  });
  Convolution<bfloat16> a({}, kWide);
  a.forward();
  EXPECT_THAT(a.gpu.algorithm_cache().find(kForwardWide), Optional(StartsWith("engine ")));
}

}  // namespace
}  // namespace convoy

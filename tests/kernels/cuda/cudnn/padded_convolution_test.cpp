// Tests of convolutions of copies with more channels, and of the choice between them and the arrays themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "convoy/kernels/cuda/cudnn/conv2d_plans.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "emulator/runtime/emulator.h"
#include "tests/kernels/cuda/cudnn/cudnn_fixture.h"

namespace convoy {
namespace {

using namespace testing;    // NOLINT: the fixture
using namespace ::testing;  // NOLINT: matchers

class PaddedConvolution : public CudnnConv2d {};

CudaStream& stream_of(const Convolution<bfloat16>& a) {
  return std::get<std::reference_wrapper<CudaStream>>(a.gpu.stream());
}

// Images have fewer channels than the tensor cores multiply at a time, and cuDNN's kernels for Hopper want units of 32
// channels. Zeros take the place of the others.
TEST_F(PaddedConvolution, HasTheResultsOfTheArrays) {
  for (const std::int64_t channels : {3, 24}) {
    const ConvCase narrow{2, 6, 6, channels, 64, 3, 3, 1, 1};
    const auto dy = Array<bfloat16>::random(narrow.y(), 5);
    const auto results = [&](Convolution<bfloat16>& a) {
      a.gpu.set_autotune(false);
      const DeviceArray<bfloat16> of_y(a.gpu, dy), dx(a.gpu, narrow.x()), dfilter(a.gpu, narrow.filter());
      a.forward();
      kernels::conv2d_backward_data(stream_of(a), of_y.view(), a.filter.view(), dx.grad(), narrow.options());
      kernels::conv2d_backward_filter(stream_of(a), of_y.view(), a.x.view(), dfilter.grad(),
                                      narrow.options());
      return std::array{a.y.values(), dx.values(), dfilter.values()};
    };
    Convolution<bfloat16> padded({}, narrow), plain({}, narrow);
    for (const char* const direction : {"forward", "backward data", "backward filter"})
      padded.store(
          std::string("conv2d ") + direction + " bf16 n2 6x6x" + std::to_string(channels) + " k64 3x3 s1 p1",
          "padded");
    const auto found = results(padded), expected = results(plain);
    for (std::size_t i = 0; i < found.size(); ++i)
      for (std::size_t e = 0; e < expected[i].size(); ++e)  // both round a sum of the same products once
        ASSERT_NEAR(value_of(found[i][e]), value_of(expected[i][e]),
                    0x1p-7 * std::abs(value_of(expected[i][e])) + 1e-5)
            << channels << " channels, " << i << ", " << e;
  }
}

TEST_F(PaddedConvolution, IsTimedWhereTheCopiesAreNotMuchLarger) {
  for (const std::int64_t channels : {3, 24, 16, 32}) {
    const ConvCase sizes{2, 6, 6, channels, 64, 3, 3, 1, 1};
    Convolution<bfloat16> a({}, sizes);
    stream_of(a).local<kernels::MinimumPaddedFlops>().value = 1;
    a.forward();
    // With 3 or 24 channels, also the problem of the copies.
    EXPECT_EQ(a.gpu.algorithm_cache().size(), channels == 3 || channels == 24 ? 2u : 1u) << channels;
  }
}

// The copies with more channels need memory.
TEST_F(PaddedConvolution, IsLeftOutWithoutMemory) {
  Convolution<bfloat16> a({}, {2, 6, 6, 3, 64, 3, 3, 1, 1});
  stream_of(a).local<kernels::MinimumPaddedFlops>().value = 1;
  const std::string key = "conv2d forward bf16 n2 6x6x3 k64 3x3 s1 p1";
  {
    emulator::Settings full = emulator::settings();
    full.memory_bytes = 1;
    const emulator::ScopedSettings settings(full);
    a.forward();
  }
  EXPECT_THAT(a.gpu.algorithm_cache().find(key), Optional(StartsWith("engine ")));
}

// A launch takes longer than these, by any algorithm.
TEST_F(PaddedConvolution, IsNotTimedForSmallProblems) {
  Convolution<bfloat16> a({}, {2, 6, 6, 3, 64, 3, 3, 1, 1});
  a.forward();
  EXPECT_EQ(a.gpu.algorithm_cache().size(), 1u);
}

}  // namespace
}  // namespace convoy

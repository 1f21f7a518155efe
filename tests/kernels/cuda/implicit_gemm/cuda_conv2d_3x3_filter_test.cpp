// Compares the gradient of filters by tensor cores with the reference loops on the CPU.
#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3_filter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3.h"
#include "tests/kernels/conv2d_cases.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

namespace implicit_gemm = kernels::implicit_gemm;
using testing::Array;
using testing::ConvCase;
using testing::DeviceArray;
using testing::dot_tolerance;
using testing::expect_rounded_near;
using testing::Repeats;

ConvCase filter_case(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t i, std::int64_t o) {
  return {n, h, w, i, o, 3, 3, 1, 1};
}

CudaStream& filter_stream(const DeviceContext& gpu) {
  return std::get<std::reference_wrapper<CudaStream>>(gpu.stream());
}

kernels::ConvSizes filter_sizes(const ConvCase& c) { return {c.x(), c.filter(), c.y(), c.options()}; }

template <class T>
class CudaConv2d3x3Filter : public testing::GpuTest {
 protected:
  /// Compares both modes with the CPU in f64.
  void compare(const ConvCase& c, int ranges) {
    SCOPED_TRACE(::testing::Message() << c << " ranges " << ranges);
    ASSERT_TRUE(implicit_gemm::supports_backward_filter(dtype_of<T>, filter_sizes(c)));
    const auto x = Array<T>::random(c.x(), 1), dy = Array<T>::random(c.y(), 2);
    const auto before = Array<T>::random(c.filter(), 5);
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<T> gpu_x(gpu, x), gpu_dy(gpu, dy);
    for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
      Array<double> expected = before.template to<double>();
      CpuStream cpu({.threads = 1});
      kernels::conv2d_backward_filter_reference(cpu, dy.template to<double>().view(),
                                                x.template to<double>().view(), expected.grad(mode),
                                                c.options());
      Repeats<T> repeats;
      this->for_each_order([&] {
        const DeviceArray<T> out(gpu, before);
        implicit_gemm::backward_filter(filter_stream(gpu), gpu_dy.view(), gpu_x.view(), out.grad(mode),
                                       ranges);
        const Array<T> found = out.values();
        expect_rounded_near(found, expected, dot_tolerance<T>(c.n * c.h * c.w));
        repeats.expect_same(found);
      });
    }
  }
};

using FilterTypes = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(CudaConv2d3x3Filter, FilterTypes);

// Images of all kinds of borders: of one pixel, one row, one column. A step has 64 pixels, so it ends within an
// image or contains several; the last one is not full.
TYPED_TEST(CudaConv2d3x3Filter, AgreesForImagesOfAllShapes) {
  this->compare(filter_case(1, 1, 1, 16, 64), 1);
  this->compare(filter_case(3, 1, 9, 16, 64), 1);
  this->compare(filter_case(3, 23, 1, 16, 64), 1);
  this->compare(filter_case(10, 4, 4, 16, 64), 1);
  this->compare(filter_case(3, 7, 5, 32, 64), 1);
}

// The rows of x pass through a ring in shared memory, which this many steps go round several times.
TYPED_TEST(CudaConv2d3x3Filter, AgreesAfterSeveralRoundsOfTheRing) {
  this->compare(filter_case(6, 9, 7, 16, 64), 1);
  this->compare(filter_case(1, 20, 17, 16, 64), 1);
}

// Images of more than 91 columns leave shared memory for two steps instead of three.
TYPED_TEST(CudaConv2d3x3Filter, AgreesForTheWidestImages) {
  this->compare(filter_case(1, 4, implicit_gemm::kMaxWidth, 16, 64), 1);
  this->compare(filter_case(1, 2, 91, 16, 64), 1);
}

TYPED_TEST(CudaConv2d3x3Filter, AgreesForSeveralBlocksOfChannels) {
  this->compare(filter_case(1, 5, 6, 80, 128), 1);
  this->compare(filter_case(1, 5, 13, 48, 64), 2);
}

// Ranges of equal and of different numbers of steps, of one step, and of none.
TYPED_TEST(CudaConv2d3x3Filter, AgreesForSeveralRanges) {
  this->compare(filter_case(4, 8, 8, 16, 64), 2);
  this->compare(filter_case(4, 9, 8, 16, 64), 3);
  this->compare(filter_case(3, 8, 8, 16, 64), 3);
  this->compare(filter_case(1, 8, 9, 16, 64), 11);
}

// Also for so many channels that a thread of the second kernel adds all ranges.
TYPED_TEST(CudaConv2d3x3Filter, GivesZeroForAnEmptyBatch) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  CudaStream& stream = filter_stream(gpu);
  for (const std::int64_t channels : {64, 256}) {
    const DeviceArray<TypeParam> none(gpu, Shape{0, 4, 4, channels});
    const Array<TypeParam> before = Array<TypeParam>::random({channels, 3, 3, channels}, 1);
    for (const int ranges : {1, 2}) {
      const DeviceArray<TypeParam> written(gpu, before), added(gpu, before);
      implicit_gemm::backward_filter(stream, none.view(), none.view(), written.grad(), ranges);
      implicit_gemm::backward_filter(stream, none.view(), none.view(), added.grad(GradMode::accumulate),
                                     ranges);
      testing::expect_same_bits(written.values(), Array<TypeParam>(before.shape()));
      testing::expect_same_bits(added.values(), before);
    }
    implicit_gemm::backward_filter(stream, none.view(), none.view(), GradView(), 1);
  }
}

// A pixel that is not a number is in the gradients of the taps that reach it, and in no others. In an image of
// one row these are the three of the middle row of the filter; for the last pixel only two of them.
TYPED_TEST(CudaConv2d3x3Filter, PropagatesNanToItsTapsOnly) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const ConvCase c = filter_case(3, 1, 5, 16, 64);
  const std::size_t channel = 3;
  auto x = Array<TypeParam>::random(c.x(), 1);
  x[14 * 16 + channel] = static_cast<TypeParam>(std::numeric_limits<float>::quiet_NaN());  // the last pixel
  const DeviceArray<TypeParam> gpu_x(gpu, x), dy(gpu, Array<TypeParam>::random(c.y(), 2)),
      out(gpu, c.filter());
  implicit_gemm::backward_filter(filter_stream(gpu), dy.view(), gpu_x.view(), out.grad(), 1);
  const Array<TypeParam> found = out.values();
  for (std::size_t e = 0; e < found.size(); ++e) {
    const std::size_t tap = e / 16 % 9;
    EXPECT_EQ(std::isnan(testing::value_of(found[e])), e % 16 == channel && (tap == 4 || tap == 5))
        << "element " << e;
  }
}

TEST(Conv2d3x3Filter, SupportsShapesOfTheHeader) {
  const auto supports = [](ConvCase c, DType dtype = DType::bf16) {
    return implicit_gemm::supports_backward_filter(dtype, filter_sizes(c));
  };
  const ConvCase usual = filter_case(128, 32, 32, 64, 64);
  EXPECT_TRUE(supports(usual));
  EXPECT_TRUE(supports(usual, DType::f16));
  EXPECT_FALSE(supports(usual, DType::f32));
  EXPECT_TRUE(supports(filter_case(128, 32, 32, 16, 512)));
  EXPECT_FALSE(supports(filter_case(128, 32, 32, 8, 64)));
  EXPECT_FALSE(supports(filter_case(128, 32, 32, 64, 32)));
  EXPECT_TRUE(supports(filter_case(1, 4, implicit_gemm::kMaxWidth, 64, 64)));
  EXPECT_FALSE(supports(filter_case(1, 4, implicit_gemm::kMaxWidth + 1, 64, 64)));
  EXPECT_FALSE(supports(filter_case(1 << 20, 32, 33, 64, 64))) << "2^30 pixels";
  EXPECT_TRUE(supports(filter_case(0, 4, 4, 64, 64)));
  EXPECT_FALSE(supports({2, 8, 8, 64, 64, 1, 1, 1, 1}));
  EXPECT_FALSE(supports({2, 8, 8, 64, 64, 3, 3, 2, 1}));
  EXPECT_FALSE(supports({2, 8, 8, 64, 64, 3, 3, 1, 0}));
  EXPECT_FALSE(supports({2, 8, 8, 64, 64, 3, 3, 1, 1, 2}));
}

// Blocks of the convolutions of ResNet-18 with 128 images: 2, 8, 32 and 128 for the channels. Each has 32 steps.
TEST(Conv2d3x3Filter, ChoosesRangesByTheNumberOfBlocks) {
  const auto ranges = [](const ConvCase& c) { return implicit_gemm::filter_ranges(filter_sizes(c)); };
  EXPECT_EQ(ranges(filter_case(128, 32, 32, 64, 64)), 64);
  EXPECT_EQ(ranges(filter_case(128, 16, 16, 128, 128)), 16);
  EXPECT_EQ(ranges(filter_case(128, 8, 8, 256, 256)), 4);
  EXPECT_EQ(ranges(filter_case(128, 4, 4, 512, 512)), 1);
  EXPECT_EQ(ranges(filter_case(1, 8, 8, 64, 64)), 1);
  EXPECT_EQ(ranges(filter_case(0, 8, 8, 64, 64)), 1);
}

}  // namespace
}  // namespace convoy

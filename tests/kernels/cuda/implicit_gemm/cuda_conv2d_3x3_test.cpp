// Compares the convolution by tensor cores with the reference loops on the CPU.
#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3.h"

#include <gtest/gtest.h>

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

ConvCase conv_case(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t i, std::int64_t o) {
  return {n, h, w, i, o, 3, 3, 1, 1};
}

CudaStream& stream_of(const DeviceContext& gpu) {
  return std::get<std::reference_wrapper<CudaStream>>(gpu.stream());
}

kernels::ConvSizes sizes_of(const ConvCase& c) { return {c.x(), c.filter(), c.y(), c.options()}; }

template <class T>
class CudaConv2d3x3 : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !implicit_gemm::has_wgmma(stream_of(DeviceContext::create_cuda(0))))
      GTEST_SKIP() << "needs a GPU of compute capability 9.0, which has wgmma";
  }
  /// Compares with the CPU in f64.
  void compare(const ConvCase& c) {
    SCOPED_TRACE(::testing::Message() << c);
    ASSERT_TRUE(implicit_gemm::supports_forward(dtype_of<T>, sizes_of(c)));
    const auto x = Array<T>::random(c.x(), 1), filter = Array<T>::random(c.filter(), 2);
    Array<double> y(c.y());
    CpuStream cpu({.threads = 1});
    kernels::conv2d_forward_reference(cpu, x.template to<double>().view(),
                                      filter.template to<double>().view(), {}, y.view(), c.options());
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<T> gpu_x(gpu, x), gpu_filter(gpu, filter);
    Repeats<T> repeats;
    this->for_each_order([&] {
      const DeviceArray<T> out(gpu, c.y());
      implicit_gemm::forward(stream_of(gpu), gpu_x.view(), gpu_filter.view(), out.view());
      const Array<T> found = out.values();
      expect_rounded_near(found, y, dot_tolerance<T>(9 * c.i));  // sums are f32, and rounded once
      repeats.expect_same(found);
    });
  }
};

using CudaConv2d3x3Types = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(CudaConv2d3x3, CudaConv2d3x3Types);

// Images of all kinds of borders: of one pixel, one row, one column; blocks that end within an image, or
// contain several; the widest rows; several slabs of input; several blocks for pixels and for channels.
TYPED_TEST(CudaConv2d3x3, ForwardAgrees) {
  this->compare(conv_case(1, 1, 1, 16, 64));
  this->compare(conv_case(3, 1, 9, 16, 64));
  this->compare(conv_case(3, 9, 1, 16, 64));
  this->compare(conv_case(3, 7, 5, 48, 64));
  this->compare(conv_case(1, 4, implicit_gemm::kMaxWidth, 16, 64));
  this->compare(conv_case(10, 4, 4, 16, 128));
  this->compare(conv_case(2, 8, 8, 64, 64));
}

TYPED_TEST(CudaConv2d3x3, DoesNothingForAnEmptyBatch) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<TypeParam> filter(gpu, Shape{64, 3, 3, 64}), none(gpu, Shape{0, 4, 4, 64});
  implicit_gemm::forward(stream_of(gpu), none.view(), filter.view(), none.view());
  gpu.synchronize();
}

TEST(Conv2d3x3, SupportsShapesOfTheHeader) {
  const auto supports = [](ConvCase c, DType dtype = DType::bf16) {
    return implicit_gemm::supports_forward(dtype, sizes_of(c));
  };
  const ConvCase usual = conv_case(128, 32, 32, 64, 64);
  EXPECT_TRUE(supports(usual));
  EXPECT_TRUE(supports(usual, DType::f16));
  EXPECT_FALSE(supports(usual, DType::f32));
  EXPECT_TRUE(supports(conv_case(128, 32, 32, 16, 512)));
  EXPECT_FALSE(supports(conv_case(128, 32, 32, 8, 64)));
  EXPECT_FALSE(supports(conv_case(128, 32, 32, 64, 32)));
  EXPECT_FALSE(supports(conv_case(1, 4, implicit_gemm::kMaxWidth + 1, 64, 64)));
  EXPECT_FALSE(supports(conv_case(1 << 20, 32, 33, 64, 64))) << "2^30 pixels";
  EXPECT_FALSE(supports({2, 8, 8, 64, 64, 1, 1, 1, 1}));
  EXPECT_FALSE(supports({2, 8, 8, 64, 64, 3, 3, 2, 1}));
  EXPECT_FALSE(supports({2, 8, 8, 64, 64, 3, 3, 1, 0}));
  EXPECT_FALSE(supports({2, 8, 8, 64, 64, 3, 3, 1, 1, 2}));
}

}  // namespace
}  // namespace convoy

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
using implicit_gemm::BlockPixels;
using implicit_gemm::Instruction;
using implicit_gemm::Variant;
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
  /// Compares all variants that the GPU has with the CPU in f64.
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
    check(gpu, y, GradMode::overwrite, 9 * c.i, [&](CudaStream& stream, GradView out, Variant variant) {
      implicit_gemm::forward(stream, gpu_x.view(), gpu_filter.view(), out, variant);
    });
  }
  /// The same for the gradient of the input of the convolution.
  void compare_backward(const ConvCase& c) {
    SCOPED_TRACE(::testing::Message() << c);
    ASSERT_TRUE(implicit_gemm::supports_backward_data(dtype_of<T>, sizes_of(c)));
    const auto dy = Array<T>::random(c.y(), 1), filter = Array<T>::random(c.filter(), 2);
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<T> gpu_dy(gpu, dy), gpu_filter(gpu, filter);
    for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
      Array<double> dx = before(c.x()).template to<double>();
      CpuStream cpu({.threads = 1});
      kernels::conv2d_backward_data_reference(cpu, dy.template to<double>().view(),
                                              filter.template to<double>().view(), dx.grad(mode),
                                              c.options());
      check(gpu, dx, mode, 9 * c.o, [&](CudaStream& stream, GradView out, Variant variant) {
        implicit_gemm::backward_data(stream, gpu_dy.view(), gpu_filter.view(), out, variant);
      });
    }
  }

 private:
  static Array<T> before(Shape shape) { return Array<T>::random(shape, 5); }

  /// `terms`: of each sum, whose rounding errors are those of f32. The result is rounded once.
  template <class F>
  void check(const DeviceContext& gpu, const Array<double>& expected, GradMode mode, std::int64_t terms,
             F run) {
    for (const Instruction instruction : {Instruction::mma_sync, Instruction::wgmma}) {
      if (instruction == Instruction::wgmma && !implicit_gemm::has_wgmma(stream_of(gpu))) continue;
      SCOPED_TRACE(instruction == Instruction::wgmma ? "wgmma" : "mma.sync");
      Repeats<T> repeats;
      for (const BlockPixels block : {BlockPixels::small, BlockPixels::large})
        this->for_each_order([&] {
          const DeviceArray<T> out(gpu, before(expected.shape()));
          run(stream_of(gpu), out.grad(mode), Variant(block, instruction));
          const Array<T> found = out.values();
          expect_rounded_near(found, expected, dot_tolerance<T>(terms));
          repeats.expect_same(found);  // blocks of either size add in the same order
        });
    }
  }
};

using Types = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(CudaConv2d3x3, Types);

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

TYPED_TEST(CudaConv2d3x3, BackwardDataAgrees) {
  this->compare_backward(conv_case(1, 1, 1, 64, 16));
  this->compare_backward(conv_case(3, 1, 9, 64, 16));
  this->compare_backward(conv_case(3, 9, 1, 64, 16));
  this->compare_backward(conv_case(3, 7, 5, 64, 48));
  this->compare_backward(conv_case(1, 4, implicit_gemm::kMaxWidth, 64, 16));
  this->compare_backward(conv_case(10, 4, 4, 128, 16));
}

TYPED_TEST(CudaConv2d3x3, DoesNothingForEmptyBatchesAndUnwantedGradients) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<TypeParam> filter(gpu, Shape{64, 3, 3, 64}), none(gpu, Shape{0, 4, 4, 64});
  CudaStream& stream = stream_of(gpu);
  implicit_gemm::forward(stream, none.view(), filter.view(), none.view(), BlockPixels::small);
  implicit_gemm::backward_data(stream, none.view(), filter.view(), GradView(), BlockPixels::small);
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
  // Backward, the channels of x are the output.
  EXPECT_TRUE(implicit_gemm::supports_backward_data(DType::bf16, sizes_of(conv_case(2, 8, 8, 64, 16))));
  EXPECT_FALSE(implicit_gemm::supports_backward_data(DType::bf16, sizes_of(conv_case(2, 8, 8, 16, 64))));
}

TEST(Conv2d3x3, ChoosesBlocksByTheirNumber) {
  EXPECT_EQ(implicit_gemm::block_pixels({128, 32, 32, 64}), BlockPixels::large);   // 512 blocks of 256
  EXPECT_EQ(implicit_gemm::block_pixels({128, 16, 16, 128}), BlockPixels::large);  // 256
  EXPECT_EQ(implicit_gemm::block_pixels({128, 8, 8, 256}), BlockPixels::small);    // 128
  EXPECT_EQ(implicit_gemm::block_pixels({128, 4, 4, 512}), BlockPixels::small);    // 64
}

}  // namespace
}  // namespace convoy

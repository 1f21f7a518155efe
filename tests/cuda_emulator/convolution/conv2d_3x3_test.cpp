// Compares the convolution of Hopper's tensor cores with the reference loops on the CPU.
#include "tests/cuda_emulator/convolution/conv2d_3x3.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/kernels/conv2d_cases.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

namespace hopper = kernels::hopper;
using hopper::Filters;
using testing::Array;
using testing::ConvCase;
using testing::DeviceArray;
using testing::dot_tolerance;
using testing::expect_rounded_near;
using testing::Repeats;

ConvCase conv_3x3(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t i, std::int64_t o) {
  return {n, h, w, i, o, 3, 3, 1, 1};
}

CudaStream& cuda_stream(const DeviceContext& gpu) {
  return std::get<std::reference_wrapper<CudaStream>>(gpu.stream());
}

kernels::ConvSizes sizes_of(const ConvCase& c) { return {c.x(), c.filter(), c.y(), c.options()}; }

template <class T>
class CudaConv2d3x3 : public testing::GpuTest {
 protected:
  /// Compares all three directions with the CPU in f32, and the sums of the forward one with its elements in f64.
  void compare(const ConvCase& c, bool in_each_order = true) {
    SCOPED_TRACE(::testing::Message() << c);
    ASSERT_TRUE(hopper::supports_conv2d_3x3(dtype_of<T>, sizes_of(c)));
    const auto x = Array<T>::random(c.x(), 1), filter = Array<T>::random(c.filter(), 2),
               dy = Array<T>::random(c.y(), 3);
    CpuStream cpu({.threads = 2});
    Array<float> y(c.y()), dx(c.x()), dfilter(c.filter());
    kernels::conv2d_forward(cpu, x.template to<float>().view(), filter.template to<float>().view(), {},
                            y.view(), c.options());
    kernels::conv2d_backward_data(cpu, dy.template to<float>().view(), filter.template to<float>().view(),
                                  dx.grad(), c.options());
    kernels::conv2d_backward_filter(cpu, dy.template to<float>().view(), x.template to<float>().view(),
                                    dfilter.grad(), c.options());
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<T> gpu_x(gpu, x), gpu_filter(gpu, filter), gpu_dy(gpu, dy);
    Repeats<T> of_y, of_dx;
    Repeats<float> of_sums, of_dfilter;
    const auto run = [&] {
      const DeviceArray<T> out_y(gpu, c.y()), out_dx(gpu, c.x());
      const DeviceArray<float> out_sums(gpu, Shape{2, c.o}), out_dfilter(gpu, c.filter());
      hopper::conv2d_3x3(cuda_stream(gpu), Filters::forward, gpu_x.view(), gpu_filter.view(), out_y.view(),
                         out_sums.view());
      hopper::conv2d_3x3(cuda_stream(gpu), Filters::flipped, gpu_dy.view(), gpu_filter.view(), out_dx.view());
      hopper::conv2d_3x3_filter(cuda_stream(gpu), gpu_dy.view(), gpu_x.view(), out_dfilter.grad());
      const Array<T> found = out_y.values();
      // Both sides round sums in f32.
      expect_rounded_near(found, y, 2 * dot_tolerance<T>(9 * c.i));
      expect_rounded_near(out_dx.values(), dx, 2 * dot_tolerance<T>(9 * c.o));
      expect_rounded_near(out_dfilter.values(), dfilter, 2 * dot_tolerance<float>(c.n * c.h * c.w));
      expect_sums(found, out_sums.values());
      of_y.expect_same(found);
      of_dx.expect_same(out_dx.values());
      of_sums.expect_same(out_sums.values());
      of_dfilter.expect_same(out_dfilter.values());
    };
    if (in_each_order)
      this->for_each_order(run);
    else
      run();
  }

  /// Compares forward with max pooling, and both gradients of that, with the CPU in f32.
  void compare_pooled(const ConvCase& c, bool in_each_order = true) {
    SCOPED_TRACE(::testing::Message() << c);
    const Shape cells{c.n, c.h / 2, c.w / 2, c.o};
    const auto x = Array<T>::random(c.x(), 1), filter = Array<T>::random(c.filter(), 2),
               dcells = Array<T>::random(cells, 3);
    Array<std::uint8_t> chosen(cells);
    for (std::size_t e = 0; e < chosen.size(); ++e) chosen[e] = static_cast<std::uint8_t>(e * 7 / 3 % 4);
    // Calls f(cell, pixel 0 to 3, place in y) for each pixel of each cell.
    const auto for_each_pixel = [&](const auto& f) {
      for (std::int64_t cell = 0; cell < cells.numel(); ++cell)
        for (int pixel = 0; pixel < 4; ++pixel) {
          const std::int64_t column = cell / c.o % cells[2] * 2 + pixel % 2,
                             row = cell / c.o / cells[2] % cells[1] * 2 + pixel / 2,
                             image = cell / c.o / cells[2] / cells[1];
          f(static_cast<std::size_t>(cell), pixel,
            static_cast<std::size_t>(((image * c.h + row) * c.w + column) * c.o + cell % c.o));
        }
    };
    CpuStream cpu({.threads = 2});
    Array<float> y(c.y()), dy(c.y()), dx(c.x()), dfilter(c.filter());
    for_each_pixel([&](std::size_t cell, int pixel, std::size_t place) {
      if (chosen[cell] == pixel) dy[place] = static_cast<float>(dcells[cell]);
    });
    kernels::conv2d_forward(cpu, x.template to<float>().view(), filter.template to<float>().view(), {},
                            y.view(), c.options());
    kernels::conv2d_backward_data(cpu, dy.view(), filter.template to<float>().view(), dx.grad(), c.options());
    kernels::conv2d_backward_filter(cpu, dy.view(), x.template to<float>().view(), dfilter.grad(),
                                    c.options());
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<T> gpu_x(gpu, x), gpu_filter(gpu, filter), gpu_dcells(gpu, dcells);
    const DeviceArray<std::uint8_t> gpu_chosen(gpu, chosen);
    const auto run = [&] {
      const DeviceArray<T> out_y(gpu, cells), out_dx(gpu, c.x());
      const DeviceArray<std::uint8_t> out_indices(gpu, cells);
      const DeviceArray<float> out_sums(gpu, Shape{2, c.o}), out_dfilter(gpu, c.filter());
      hopper::conv2d_3x3(cuda_stream(gpu), Filters::forward, gpu_x.view(), gpu_filter.view(), out_y.view(),
                         out_sums.view(), out_indices.view());
      hopper::conv2d_3x3(cuda_stream(gpu), Filters::flipped, gpu_dcells.view(), gpu_filter.view(),
                         out_dx.view(), {}, gpu_chosen.view());
      hopper::conv2d_3x3_filter(cuda_stream(gpu), gpu_dcells.view(), gpu_x.view(), out_dfilter.grad(),
                                gpu_chosen.view());
      const Array<T> found = out_y.values();
      const Array<std::uint8_t> indices = out_indices.values();
      const double tolerance = 2 * dot_tolerance<T>(9 * c.i);
      for_each_pixel([&](std::size_t cell, int pixel, std::size_t place) {
        const double value = testing::value_of(found[cell]), exact = y[place];
        const double rounding = testing::unit_roundoff<T>() * (std::abs(exact) + tolerance) + tolerance;
        ASSERT_GE(value, exact - rounding) << "cell " << cell << ", pixel " << pixel;
        if (indices[cell] == pixel) {
          ASSERT_NEAR(value, exact, rounding) << "cell " << cell;
        }
        ASSERT_LT(indices[cell], 4);
      });
      expect_sums(found, out_sums.values());
      expect_rounded_near(out_dx.values(), dx, 2 * dot_tolerance<T>(9 * c.o));
      expect_rounded_near(out_dfilter.values(), dfilter, 2 * dot_tolerance<float>(c.n * c.h * c.w));
    };
    if (in_each_order)
      this->for_each_order(run);
    else
      run();
  }

  /// Compares a convolution with stride 2, alone and with its neighbor, and both gradients of x with the CPU in f32.
  void compare_strided(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t i, std::int64_t o,
                       bool in_each_order = true) {
    const ConvCase c{n, h, w, i, o, 3, 3, 2, 1}, next{n, h, w, i, o, 1, 1, 2, 0};
    SCOPED_TRACE(::testing::Message() << c);
    ASSERT_TRUE(hopper::supports_conv2d_strided(dtype_of<T>, sizes_of(c)));
    const auto x = Array<T>::random(c.x(), 1), filter = Array<T>::random(c.filter(), 2),
               next_filter = Array<T>::random(next.filter(), 3), dy = Array<T>::random(c.y(), 4),
               next_dy = Array<T>::random(c.y(), 5);
    CpuStream cpu({.threads = 2});
    Array<float> y(c.y()), next_y(c.y()), dx(c.x());
    const auto f32 = [](const Array<T>& values) { return values.template to<float>(); };
    kernels::conv2d_forward(cpu, f32(x).view(), f32(filter).view(), {}, y.view(), c.options());
    kernels::conv2d_forward(cpu, f32(x).view(), f32(next_filter).view(), {}, next_y.view(), next.options());
    kernels::conv2d_backward_data(cpu, f32(dy).view(), f32(filter).view(), dx.grad(), c.options());
    const Array<float> own_dx = dx;
    kernels::conv2d_backward_data(cpu, f32(next_dy).view(), f32(next_filter).view(),
                                  dx.grad(GradMode::accumulate), next.options());
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<T> gpu_x(gpu, x), gpu_filter(gpu, filter), gpu_next_filter(gpu, next_filter),
        gpu_dy(gpu, dy), gpu_next_dy(gpu, next_dy);
    const auto run = [&] {
      CudaStream& stream = cuda_stream(gpu);
      const DeviceArray<T> alone(gpu, c.y()), out_y(gpu, c.y()), out_next(gpu, c.y()), alone_dx(gpu, c.x()),
          out_dx(gpu, c.x());
      const DeviceArray<float> out_sums(gpu, Shape{2, 2, o}), alone_sums(gpu, Shape{2, 2, o});
      hopper::conv2d_strided(stream, gpu_x.view(), gpu_filter.view(), alone.view(), alone_sums.view());
      hopper::conv2d_strided(stream, gpu_x.view(), gpu_filter.view(), out_y.view(), out_sums.view(),
                             {gpu_next_filter.view(), out_next.view()});
      hopper::conv2d_strided_data(stream, gpu_dy.view(), gpu_filter.view(), alone_dx.view());
      hopper::conv2d_strided_data(stream, gpu_dy.view(), gpu_filter.view(), out_dx.view(), gpu_next_dy.view(),
                                  gpu_next_filter.view());
      expect_rounded_near(alone.values(), y, 2 * dot_tolerance<T>(9 * i));
      expect_rounded_near(out_y.values(), y, 2 * dot_tolerance<T>(9 * i));
      expect_rounded_near(out_next.values(), next_y, 2 * dot_tolerance<T>(i));
      expect_rounded_near(alone_dx.values(), own_dx, 2 * dot_tolerance<T>(4 * o));
      expect_rounded_near(out_dx.values(), dx, 2 * dot_tolerance<T>(5 * o));
      const Array<float> both = out_sums.values(), single = alone_sums.values();
      const auto half = [&](const Array<float>& sums, std::int64_t first) {
        Array<float> part({2, o});
        for (std::size_t e = 0; e < part.size(); ++e)
          part[e] = sums[static_cast<std::size_t>(first * 2 * o) + e];
        return part;
      };
      expect_sums(out_y.values(), half(both, 0));
      expect_sums(out_next.values(), half(both, 1));
      expect_sums(alone.values(), half(single, 0));
      EXPECT_EQ(half(single, 1)[0], 0);
    };
    if (in_each_order)
      this->for_each_order(run);
    else
      run();
  }

  /// Expects the sums of the stored elements and of their squares. A sum in f32 of terms t has an error of at most
  /// count eps sum |t|, in any order.
  static void expect_sums(const Array<T>& y, const Array<float>& sums) {
    const std::size_t channels = sums.size() / 2, rows = y.size() / channels;
    for (std::size_t channel = 0; channel < channels; ++channel) {
      double sum = 0, size = 0, squares = 0;
      for (std::size_t row = 0; row < rows; ++row) {
        const double value = testing::value_of(y[row * channels + channel]);
        sum += value;
        size += std::abs(value);
        squares += value * value;
      }
      const double relative = 0x1p-24 * static_cast<double>(rows);
      ASSERT_NEAR(sums[channel], sum, relative * size) << "channel " << channel;
      ASSERT_NEAR(sums[channels + channel], squares, 2 * relative * squares) << "channel " << channel;
    }
  }
};

using CudaConv2d3x3Types = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(CudaConv2d3x3, CudaConv2d3x3Types);

// The layers of a ResNet-18 for images of 32 x 32 pixels, with one image, in one order of threads.
TYPED_TEST(CudaConv2d3x3, AgreesForTheLayersOfAResNet) {
  this->compare(conv_3x3(1, 32, 32, 64, 64), /*in_each_order=*/false);
  this->compare(conv_3x3(1, 16, 16, 128, 128), /*in_each_order=*/false);
  this->compare(conv_3x3(1, 8, 8, 256, 256), /*in_each_order=*/false);
}

// Images that end within a tile, an odd number of tiles, images of one row, and all widths; groups of output
// channels with filters that stay, and with several steps.
TYPED_TEST(CudaConv2d3x3, AgreesForOddShapes) {
  this->compare(conv_3x3(1, 5, 32, 64, 128), /*in_each_order=*/false);
  this->compare(conv_3x3(3, 1, 16, 128, 64));
  this->compare(conv_3x3(1, 2, 16, 64, 64), /*in_each_order=*/false);
  this->compare(conv_3x3(2, 11, 8, 64, 64));
  this->compare(conv_3x3(1, 3, 32, 192, 64), /*in_each_order=*/false);
}

// Images whose tiles have rows of several images, and channels that do not fill a group of 64.
TYPED_TEST(CudaConv2d3x3, AgreesForAnyWidthAndChannels) {
  this->compare(conv_3x3(3, 4, 4, 72, 128), /*in_each_order=*/false);
  this->compare(conv_3x3(2, 7, 7, 24, 40));
  this->compare(conv_3x3(2, 15, 14, 64, 96), /*in_each_order=*/false);
  this->compare(conv_3x3(1, 3, 63, 8, 16), /*in_each_order=*/false);
  this->compare(conv_3x3(2, 1, 1, 16, 8), /*in_each_order=*/false);
  this->compare(conv_3x3(1, 5, 32, 40, 72), /*in_each_order=*/false);
}

// The recipe's layer of 24 to 64 channels, and an odd number of rows or columns, which the cells do not cover.
TYPED_TEST(CudaConv2d3x3, AgreesWithPooling) {
  this->compare_pooled(conv_3x3(1, 31, 31, 24, 64), /*in_each_order=*/false);
  this->compare_pooled(conv_3x3(3, 5, 6, 64, 16));
  this->compare_pooled(conv_3x3(2, 2, 32, 72, 72), /*in_each_order=*/false);
}

// Layers of a ResNet with fewer channels, tiles with rows of several images, and many tiles of a block.
TYPED_TEST(CudaConv2d3x3, AgreesWithStride2) {
  this->compare_strided(1, 32, 32, 64, 128, /*in_each_order=*/false);
  this->compare_strided(3, 8, 8, 72, 64);
  this->compare_strided(2, 2, 6, 8, 24, /*in_each_order=*/false);
  this->compare_strided(1, 4, 126, 24, 8, /*in_each_order=*/false);
  testing::set_gpu_multiprocessors(2);
  this->compare_strided(5, 12, 16, 64, 72, /*in_each_order=*/false);
  testing::set_gpu_order(0);
}

// The first of equal pixels, and a NaN.
TYPED_TEST(CudaConv2d3x3, PoolsTheFirstGreatestPixelOrANan) {
  using T = TypeParam;
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  Array<T> x({1, 2, 4, 8}, static_cast<T>(0.0f)), filter({8, 3, 3, 8}, static_cast<T>(0.0f));
  for (std::size_t i = 0; i < 8; ++i) filter[i * 72 + 4 * 8 + i] = static_cast<T>(1.0f);  // the identity
  for (std::size_t pixel : {1u, 4u, 5u}) x[pixel * 8] = static_cast<T>(2.0f);
  x[7 * 8 + 3] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  const DeviceArray<T> gpu_x(gpu, x), gpu_filter(gpu, filter), y(gpu, Shape{1, 1, 2, 8});
  const DeviceArray<std::uint8_t> indices(gpu, Shape{1, 1, 2, 8});
  hopper::conv2d_3x3(cuda_stream(gpu), Filters::forward, gpu_x.view(), gpu_filter.view(), y.view(), {},
                     indices.view());
  EXPECT_EQ(indices.values()[0], 1) << "of pixels 1, 4 and 5, which are 1, 2 and 3 of the cell";
  EXPECT_EQ(testing::value_of(y.values()[0]), 2);
  EXPECT_EQ(indices.values()[1], 0) << "all are 0";
  EXPECT_TRUE(std::isnan(testing::value_of(y.values()[8 + 3])));
  EXPECT_EQ(indices.values()[8 + 3], 3);
}

// A block has more tiles than there are slabs in shared memory, and several groups of output channels.
TYPED_TEST(CudaConv2d3x3, AgreesForManyTilesOfABlock) {
  testing::set_gpu_multiprocessors(2);
  this->compare(testing::gpus_are_emulated() ? conv_3x3(9, 11, 8, 64, 128) : conv_3x3(128, 32, 32, 64, 64),
                /*in_each_order=*/false);
  testing::set_gpu_order(0);
}

TYPED_TEST(CudaConv2d3x3, DoesNothingForAnEmptyBatch) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<TypeParam> filter(gpu, Shape{64, 3, 3, 64}), none(gpu, Shape{0, 8, 8, 64});
  const DeviceArray<float> sums(gpu, Shape{2, 64});
  hopper::conv2d_3x3(cuda_stream(gpu), Filters::forward, none.view(), filter.view(), none.view(),
                     sums.view());
  EXPECT_EQ(sums.values()[127], 0);
  const DeviceArray<float> dfilter(gpu, Array<float>({64, 3, 3, 64}, 5));
  hopper::conv2d_3x3_filter(cuda_stream(gpu), none.view(), none.view(), dfilter.grad(GradMode::accumulate));
  EXPECT_EQ(dfilter.values()[100], 5);
  hopper::conv2d_3x3_filter(cuda_stream(gpu), none.view(), none.view(), dfilter.grad());
  EXPECT_EQ(dfilter.values()[100], 0);
}

TYPED_TEST(CudaConv2d3x3, AddsToTheGradientOfTheFilter) {
  const ConvCase c = conv_3x3(1, 3, 8, 64, 64);
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<TypeParam> x(gpu, Array<TypeParam>::random(c.x(), 1)),
      dy(gpu, Array<TypeParam>::random(c.y(), 2));
  const DeviceArray<float> once(gpu, c.filter()), twice(gpu, Array<float>(c.filter(), 1));
  hopper::conv2d_3x3_filter(cuda_stream(gpu), dy.view(), x.view(), once.grad());
  hopper::conv2d_3x3_filter(cuda_stream(gpu), dy.view(), x.view(), twice.grad(GradMode::accumulate));
  const Array<float> gradient = once.values(), sum = twice.values();
  for (std::size_t e = 0; e < sum.size(); ++e) ASSERT_EQ(sum[e], gradient[e] + 1) << "element " << e;
}

TEST(Conv2d3x3, SupportsTheShapesOfItsHeader) {
  const auto supports = [](ConvCase c, DType dtype = DType::bf16) {
    return hopper::supports_conv2d_3x3(dtype, sizes_of(c));
  };
  EXPECT_TRUE(supports(conv_3x3(128, 32, 32, 64, 64)));
  EXPECT_TRUE(supports(conv_3x3(128, 32, 32, 64, 64), DType::f16));
  EXPECT_FALSE(supports(conv_3x3(128, 32, 32, 64, 64), DType::f32));
  EXPECT_TRUE(supports(conv_3x3(128, 7, 8, 512, 320)));
  EXPECT_TRUE(supports(conv_3x3(128, 4, 4, 512, 512)));
  EXPECT_TRUE(supports(conv_3x3(128, 28, 28, 24, 96)));
  EXPECT_FALSE(supports(conv_3x3(128, 32, 32, 12, 64)));
  EXPECT_FALSE(supports(conv_3x3(128, 32, 32, 64, 60)));
  EXPECT_TRUE(supports(conv_3x3(128, 64, 63, 64, 64)));
  EXPECT_FALSE(supports(conv_3x3(128, 64, 64, 64, 64)));
  EXPECT_FALSE(supports(conv_3x3(32768, 32, 32, 64, 64))) << "2^31 elements";
  EXPECT_FALSE(supports({2, 8, 8, 64, 64, 1, 1, 1, 1}));
  EXPECT_FALSE(supports({2, 8, 8, 64, 64, 3, 3, 2, 1}));
  EXPECT_FALSE(supports({2, 8, 8, 64, 64, 3, 3, 1, 0}));
  EXPECT_FALSE(supports({2, 8, 8, 64, 64, 3, 3, 1, 1, 2}));
}

TEST(Conv2d3x3, SupportsStride2) {
  const auto supports = [](ConvCase c, DType dtype = DType::f16) {
    return hopper::supports_conv2d_strided(dtype, sizes_of(c));
  };
  EXPECT_TRUE(supports({128, 32, 32, 64, 128, 3, 3, 2, 1}));
  EXPECT_TRUE(supports({128, 8, 126, 8, 8, 3, 3, 2, 1}));
  EXPECT_FALSE(supports({128, 8, 128, 8, 8, 3, 3, 2, 1}));
  EXPECT_FALSE(supports({128, 31, 32, 64, 128, 3, 3, 2, 1}));
  EXPECT_FALSE(supports({128, 32, 31, 64, 128, 3, 3, 2, 1}));
  EXPECT_FALSE(supports({128, 32, 32, 64, 128, 3, 3, 1, 1}));
  EXPECT_FALSE(supports({128, 32, 32, 64, 128, 3, 3, 2, 0}));
  EXPECT_FALSE(supports({128, 32, 32, 60, 128, 3, 3, 2, 1}));
  EXPECT_FALSE(supports({128, 32, 32, 64, 128, 3, 3, 2, 1}, DType::f32));
}

}  // namespace
}  // namespace convoy

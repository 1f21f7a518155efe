// Tests of the reference convolution and of oneDNN convolutions on the CPU.
#include "convoy/kernels/conv2d.h"

#include <malloc.h>

#include <cmath>
#include <limits>

#include "convoy/kernels/cpu/onednn/convolution.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/memory/memory.h"
#include "tests/kernels/conv2d_comparison.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ConvArrays;
using testing::ConvCase;
using testing::DirectConvolutions;
using testing::dot;
using testing::expect_near;
using testing::expect_same_bits;
using testing::kEps;

constexpr testing::ConvAlgorithm kConv2d{kernels::conv2d_forward, kernels::conv2d_backward_data,
                                         kernels::conv2d_backward_filter};

// Two blocks, of five and of four images.
constexpr ConvCase kTwoBlocks{9, 16, 16, 12, 20, 3, 3, 1, 1};

TEST(Conv2dReference, EqualsAnExampleByHand) {
  CpuStream stream({.threads = 1});
  //  1 2 3                                        1*1 + 2*10 + 4*100 + 5*1000 = 5421, …
  //  4 5 6   with  1   10    gives  5421 6532
  //  7 8 9         100 1000         8754 9865
  const Array<double> x({1, 3, 3, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const Array<double> filter({1, 2, 2, 1}, {1, 10, 100, 1000});
  const Array<double> bias({1}, {0.5});
  Array<double> y({1, 2, 2, 1});
  kernels::conv2d_forward_reference(stream, x.view(), filter.view(), bias.view(), y.view(), {});
  expect_near(y, Array<double>({1, 2, 2, 1}, {5421.5, 6532.5, 8754.5, 9865.5}), 0);

  // Stride 2 with padding 1: each corner's window has one pixel, at the filter's opposite corner.
  Array<double> strided({1, 2, 2, 1});
  kernels::conv2d_forward_reference(stream, x.view(), filter.view(), ConstView(), strided.view(),
                                    {.stride = 2, .padding = 1});
  expect_near(strided, Array<double>({1, 2, 2, 1}, {1000, 3200, 7040, 9865}), 0);
}

template <class T>
void expect_relu(void (*forward)(CpuStream&, ConstView, ConstView, ConstView, View, Conv2dOptions)) {
  CpuStream stream({.threads = 1});
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const Array<T> x({1, 1, 4, 1}, {1, -1, nan, 3});
  const Array<T> filter({1, 1, 1, 1}, {1});
  const Array<T> bias({1}, {-2});
  Array<T> y({1, 1, 4, 1});
  forward(stream, x.view(), filter.view(), bias.view(), y.view(), {.relu = true});
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 0);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], 1);
}

TEST(Conv2d, AppliesReluAfterBiasAndPropagatesNan) {
  expect_relu<double>(kernels::conv2d_forward_reference);
  expect_relu<float>(kernels::conv2d_forward_reference);
  expect_relu<float>(kernels::conv2d_forward);
}

TEST(Conv2dReference, TwoChannelsInAndOut) {
  CpuStream stream({.threads = 1});
  const Array<double> x({1, 1, 2, 2}, {1, 2, 3, 4});  // pixels (1, 2) and (3, 4)
  const Array<double> filter({2, 1, 2, 2}, {1, 0, 0, 1, 1, 1, 1, 1});
  Array<double> y({1, 1, 1, 2});
  kernels::conv2d_forward_reference(stream, x.view(), filter.view(), ConstView(), y.view(), {});
  expect_near(y, Array<double>({1, 1, 1, 2}, {5, 10}), 0);
}

// Forward is linear in x and in the filter, so each gradient is the adjoint: <y, dy> = <x, dx> = <filter,
// dfilter>. For random arguments only the correct gradient passes.
TEST(Conv2dReference, GradientsAreAdjoints) {
  CpuStream stream({.threads = 2});
  for (const ConvCase& c : testing::kConvCases) {
    SCOPED_TRACE(::testing::Message() << c);
    const ConvArrays<double> in(c);
    Array<double> y(c.y());
    Array<double> dx(c.x(), 9);  // the previous value must not matter
    Array<double> dfilter(c.filter(), 9);
    kernels::conv2d_forward_reference(stream, in.x.view(), in.filter.view(), ConstView(), y.view(),
                                      c.options());
    kernels::conv2d_backward_data_reference(stream, in.dy.view(), in.filter.view(), dx.grad(), c.options());
    kernels::conv2d_backward_filter_reference(stream, in.dy.view(), in.x.view(), dfilter.grad(), c.options());
    const double expected = dot(y, in.dy);
    // At most 14 * 14 * 147 * 17 terms below 1, each rounded a few times.
    EXPECT_NEAR(dot(in.x, dx), expected, 1e-10);
    EXPECT_NEAR(dot(in.filter, dfilter), expected, 1e-10);
  }
}

TEST(Conv2dReference, BitsDoNotDependOnThreads) {
  testing::expect_bits_of_any_threads<double>(
      {kernels::conv2d_forward_reference, kernels::conv2d_backward_data_reference,
       kernels::conv2d_backward_filter_reference},
      {5, 7, 7, 5, 6, 3, 3, 2, 1});
}

// All algorithms but Winograd's. winograd_test.cpp and few_channels_test.cpp have more cases for those.
TEST(Conv2d, EqualsTheReference) {
  const DirectConvolutions direct;
  testing::compare_with_reference(kConv2d, 1, testing::kConvCases);
  const ConvCase blocks[] = {kTwoBlocks, {9, 16, 16, 24, 40, 3, 3, 1, 1, 2}};
  testing::compare_with_reference(kConv2d, 1, blocks);
}

// Includes the cases that conv2d_forward() computes by other algorithms.
TEST(OneDnn, EqualsTheReference) {
  CpuStream stream({.threads = 2});
  const auto forward = [](CpuStream& on, ConstView x, ConstView filter, ConstView bias, View y,
                          Conv2dOptions options) {
    EXPECT_EQ(kernels::onednn::convolution_forward(on, {x.shape, filter.shape, y.shape, options}, x, filter,
                                                   bias, y),
              "");
    if (options.relu) kernels::unary_forward(on, kernels::UnaryOp::relu, y, y);
  };
  const auto backward_data = [](CpuStream& on, ConstView dy, ConstView filter, GradView dx,
                                Conv2dOptions options) {
    const View to{.data = dx.data, .shape = dx.shape, .dtype = dx.dtype};
    EXPECT_EQ(kernels::onednn::convolution_backward_data(on, {dx.shape, filter.shape, dy.shape, options}, dy,
                                                         filter, to),
              "");
  };
  const auto backward_filter = [](CpuStream& on, ConstView dy, ConstView x, GradView dfilter,
                                  Conv2dOptions options) {
    const View to{.data = dfilter.data, .shape = dfilter.shape, .dtype = dfilter.dtype};
    EXPECT_EQ(kernels::onednn::convolution_backward_filter(on, {x.shape, dfilter.shape, dy.shape, options},
                                                           dy, x, to),
              "");
  };
  for (const ConvCase& c : testing::kConvCases)
    testing::compare_with_reference(stream, {forward, backward_data, backward_filter}, 1, c,
                                    GradMode::overwrite);
}

TEST(Conv2d, UsesReferenceForF64) {
  CpuStream stream({.threads = 2});
  const ConvCase c{2, 5, 5, 3, 4, 3, 3, 1, 1};
  const ConvArrays<double> in(c);
  Array<double> y(c.y()), expected(c.y());
  kernels::conv2d_forward(stream, in.x.view(), in.filter.view(), in.bias.view(), y.view(), c.options());
  kernels::conv2d_forward_reference(stream, in.x.view(), in.filter.view(), in.bias.view(), expected.view(),
                                    c.options());
  expect_same_bits(y, expected);
}

TEST(Conv2d, EmptyBatch) {
  CpuStream stream({.threads = 2});
  const ConvCase c{0, 8, 8, 16, 16, 3, 3, 1, 1};
  const ConvArrays<float> in(c);
  Array<float> y(c.y()), dx(c.x()), dfilter(c.filter(), 3);
  kernels::conv2d_forward(stream, in.x.view(), in.filter.view(), in.bias.view(), y.view(), c.options());
  kernels::conv2d_backward_data(stream, in.dy.view(), in.filter.view(), dx.grad(), c.options());
  kernels::conv2d_backward_filter(stream, in.dy.view(), in.x.view(), dfilter.grad(GradMode::accumulate),
                                  c.options());
  expect_near(dfilter, Array<float>(c.filter(), 3), 0);
  kernels::conv2d_backward_filter(stream, in.dy.view(), in.x.view(), dfilter.grad(GradMode::overwrite),
                                  c.options());
  expect_near(dfilter, Array<float>(c.filter(), 0), 0);
}

TEST(Conv2d, BitsDoNotDependOnThreads) {
  testing::expect_bits_of_any_threads<float>(kConv2d, kTwoBlocks);
  testing::expect_bits_of_any_threads<bfloat16>(kConv2d, kTwoBlocks);
}

// 3x3 windows of 16 channels use Winograd's algorithm, of 12 oneDNN; 5x5 windows of 6 are products of windows.
TEST(Conv2d, ReturnsWorkspaceToStream) {
  for (const int channels : {16, 12, 6}) {
    SCOPED_TRACE(channels);
    CpuStream stream({.threads = 2});
    const int window = channels == 6 ? 5 : 3;
    const ConvCase c{4, 16, 16, channels, 16, window, window, 1, 1};
    const ConvArrays<float> in(c);
    Array<float> dx(c.x());
    kernels::conv2d_backward_data(stream, in.dy.view(), in.filter.view(), dx.grad(GradMode::accumulate),
                                  c.options());
    EXPECT_GT(stream.memory().stats().peak_in_use, 0u);
    EXPECT_EQ(stream.memory().stats().in_use, 0u);
  }
}

TEST(Conv2d, SteadyStateAllocatesNoMemory) {
  // One thread, since each thread of the C library keeps some released memory.
  CpuStream stream({.threads = 1});
  const ConvCase c{4, 16, 16, 16, 32, 3, 3, 1, 1};
  const ConvArrays<float> in(c);
  Array<float> y(c.y()), dx(c.x()), dfilter(c.filter());
  const auto step = [&] {
    kernels::conv2d_forward(stream, in.x.view(), in.filter.view(), in.bias.view(), y.view(), c.options());
    kernels::conv2d_backward_data(stream, in.dy.view(), in.filter.view(), dx.grad(GradMode::accumulate),
                                  c.options());
    kernels::conv2d_backward_filter(stream, in.dy.view(), in.x.view(), dfilter.grad(GradMode::accumulate),
                                    c.options());
  };
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  for (int i = 0; i < 3; ++i) step();
  const std::size_t before = in_use();
  for (int i = 0; i < 50; ++i) step();
  EXPECT_LE(in_use(), before);
}

}  // namespace
}  // namespace convoy

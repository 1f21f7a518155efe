// Tests of pooling and layout permutes on the CPU.
#include "convoy/kernels/pool2d.h"

#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;
using testing::kEps;

struct Case {
  std::int64_t n, h, w, c;
  int kernel, stride, padding;

  std::int64_t oh() const { return (h + 2 * padding - kernel) / stride + 1; }
  std::int64_t ow() const { return (w + 2 * padding - kernel) / stride + 1; }
  Shape x() const { return {n, h, w, c}; }
  Shape y() const { return {n, oh(), ow(), c}; }
  Pool2dOptions options() const { return {.kernel = kernel, .stride = stride, .padding = padding}; }
};

const Case kCases[] = {
    {1, 1, 1, 1, 1, 1, 0},   {2, 8, 8, 16, 2, 2, 0}, {3, 7, 9, 5, 2, 2, 0},  // last row and column unused
    {2, 11, 11, 3, 3, 2, 1},  // ResNet's stem: overlapping, padded
    {2, 6, 5, 17, 3, 1, 1},  {1, 5, 5, 4, 2, 3, 0},  {2, 5, 4, 1, 5, 1, 2},
    {0, 8, 8, 3, 2, 2, 0},   {1, 9, 9, 6, 4, 4, 2},  {1, 40, 37, 6, 17, 9, 2},  // taps in i32
    {3, 28, 28, 6, 2, 2, 0},                         // LeNet's first, whose channels do not fill a vector
    {2, 9, 9, 20, 3, 2, 1},  {5, 4, 3, 7, 2, 2, 0},  // rows of one output
};

std::size_t at(const Shape& s, std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) {
  return static_cast<std::size_t>(((n * s[1] + y) * s[2] + x) * s[3] + c);
}

// Calls f(out, in, tap) for every output element and every pixel of its window.
template <class F>
void for_each_pair(const Case& s, F&& f) {
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t c = 0; c < s.c; ++c)
      for (std::int64_t oy = 0; oy < s.oh(); ++oy)
        for (std::int64_t ox = 0; ox < s.ow(); ++ox)
          for (std::int64_t ky = 0; ky < s.kernel; ++ky)
            for (std::int64_t kx = 0; kx < s.kernel; ++kx) {
              const std::int64_t y = oy * s.stride - s.padding + ky;
              const std::int64_t x = ox * s.stride - s.padding + kx;
              if (y < 0 || y >= s.h || x < 0 || x >= s.w) continue;
              f(at(s.y(), n, oy, ox, c), at(s.x(), n, y, x, c), static_cast<int>(ky * s.kernel + kx));
            }
}

template <class T, class Tap>
void check_max(const Case& s) {
  CpuStream stream({.threads = 3});
  auto x = Array<T>::random(s.x(), 1, 1);
  for (T& value : x)
    value = std::round(value * 3) -
            10;  // few distinct values, so that there are ties; all below the padding's zero
  Array<T> y(s.y()), expected(s.y(), static_cast<T>(-1e9));
  Array<Tap> taps(s.y()), expected_taps(s.y());
  Array<std::size_t> source(s.y());
  for_each_pair(s, [&](std::size_t out, std::size_t in, int tap) {
    if (x[in] <= expected[out]) return;
    expected[out] = x[in];
    expected_taps[out] = static_cast<Tap>(tap);
    source[out] = in;
  });
  kernels::max_pool2d_forward(stream, x.view(), y.view(), taps.view(), s.options());
  expect_same_bits(y, expected);
  expect_same_bits(taps, expected_taps);

  const auto dy = Array<T>::random(s.y(), 2, 3);
  for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
    auto dx = Array<T>::random(s.x(), 3);
    Array<T> expected_dx = mode == GradMode::accumulate ? dx : Array<T>(s.x());
    for (std::size_t out = 0; out < dy.size(); ++out) expected_dx[source[out]] += dy[out];
    kernels::max_pool2d_backward(stream, dy.view(), taps.view(), dx.grad(mode), s.options());
    // A pixel is the maximum of at most kernel^2 windows: sums are below kernel^2 + 1, and each sum is
    // rounded.
    const double terms = s.kernel * s.kernel + 1;
    expect_near(dx, expected_dx, terms * terms * kEps);
  }
}

template <class T>
void check_average(const Case& s) {
  CpuStream stream({.threads = 3});
  const double area = s.kernel * s.kernel;
  const auto x = Array<T>::random(s.x(), 1, 1);
  const auto dy = Array<T>::random(s.y(), 2, 3);
  Array<T> y(s.y());
  Array<double> expected(s.y());
  for_each_pair(
      s, [&](std::size_t out, std::size_t in, int) { expected[out] += static_cast<double>(x[in]) / area; });
  kernels::avg_pool2d_forward(stream, x.view(), y.view(), s.options());
  const double tolerance = 2 * area * kEps;  // `area` terms below 1, each addition rounded
  expect_near(y, expected, tolerance);
  for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
    auto dx = Array<T>::random(s.x(), 3);
    Array<double> expected_dx =
        mode == GradMode::accumulate ? dx.template to<double>() : Array<double>(s.x());
    for_each_pair(s, [&](std::size_t out, std::size_t in, int) {
      expected_dx[in] += static_cast<double>(dy[out]) / area;
    });
    kernels::avg_pool2d_backward(stream, dy.view(), dx.grad(mode), s.options());
    expect_near(dx, expected_dx, tolerance);
  }
}

TEST(MaxPool, EqualsItsDefinitionForwardAndBackward) {
  for (const Case& s : kCases) {
    SCOPED_TRACE(s.x().text() + " kernel " + std::to_string(s.kernel));
    if (kernels::type_of_taps(s.options()) == DType::u8) {
      check_max<float, std::uint8_t>(s);
      check_max<double, std::uint8_t>(s);
    } else {
      check_max<float, std::int32_t>(s);
      check_max<double, std::int32_t>(s);
    }
  }
}

TEST(MaxPool, FirstOfEqualsAndFirstNanWin) {
  CpuStream stream({.threads = 1});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float low = -std::numeric_limits<float>::infinity();
  // Four windows of four pixels: ties; one NaN; two NaNs; minus infinity only.
  const Array<float> x({1, 2, 8, 1}, {5, 1, 7, nan, 1, nan, low, low,  //
                                      5, 5, 8, 9, nan, 3, low, low});
  Array<float> y({1, 1, 4, 1});
  Array<std::uint8_t> taps({1, 1, 4, 1});
  kernels::max_pool2d_forward(stream, x.view(), y.view(), taps.view(), {});
  EXPECT_EQ(y[0], 5);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], low);
  expect_same_bits(taps, Array<std::uint8_t>({1, 1, 4, 1}, {0, 1, 1, 0}));
}

TEST(AveragePool, EqualsItsDefinitionForwardAndBackward) {
  for (const Case& s : kCases) {
    SCOPED_TRACE(s.x().text() + " kernel " + std::to_string(s.kernel));
    check_average<float>(s);
    check_average<double>(s);
  }
}

TEST(AveragePool, PaddingCountsAsZeros) {
  CpuStream stream({.threads = 1});
  const Array<float> x({1, 2, 2, 1}, 9);
  Array<float> y({1, 2, 2, 1});
  kernels::avg_pool2d_forward(stream, x.view(), y.view(), {.kernel = 3, .stride = 1, .padding = 1});
  expect_near(y, Array<float>({1, 2, 2, 1}, 4), 0);  // each window has four nines and five zeros
}

template <class T>
void check_global(Shape shape) {
  CpuStream stream({.threads = 3});
  const auto x = Array<T>::random(shape, 1, 1);
  const std::int64_t pixels = shape[1] * shape[2];
  Array<T> y({shape[0], shape[3]});
  Array<double> expected(y.shape());
  for (std::size_t e = 0; e < x.size(); ++e) {
    const auto channels = static_cast<std::size_t>(shape[3]);
    const std::size_t image = e / (static_cast<std::size_t>(pixels) * channels);
    expected[image * channels + e % channels] += static_cast<double>(x[e]) / static_cast<double>(pixels);
  }
  kernels::global_avg_pool2d_forward(stream, x.view(), y.view());
  expect_near(y, expected, kEps);  // summed in f64, rounded once

  const auto dy = Array<T>::random(y.shape(), 2);
  for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
    auto dx = Array<T>::random(shape, 3);
    const Array<T> before = dx;
    kernels::global_avg_pool2d_backward(stream, dy.view(), dx.grad(mode));
    for (std::size_t e = 0; e < dx.size(); ++e) {
      const auto channels = static_cast<std::size_t>(shape[3]);
      const std::size_t image = e / (static_cast<std::size_t>(pixels) * channels);
      const double slope =
          static_cast<double>(dy[image * channels + e % channels]) / static_cast<double>(pixels);
      ASSERT_NEAR(dx[e], (mode == GradMode::accumulate ? static_cast<double>(before[e]) : 0) + slope,
                  2 * kEps);
    }
  }
}

TEST(GlobalAveragePool, EqualsTheMeanForwardAndBackward) {
  for (const Shape& shape : {Shape{1, 1, 1, 1}, {3, 8, 8, 64}, {2, 7, 5, 130}, {4, 4, 4, 3}, {0, 4, 4, 3}}) {
    SCOPED_TRACE(shape.text());
    check_global<float>(shape);
    check_global<double>(shape);
  }
}

template <class T>
void check_layouts(Shape shape, GradMode mode) {
  CpuStream stream({.threads = 3});
  const std::int64_t n = shape[0], h = shape[1], w = shape[2], c = shape[3];
  const auto images = Array<T>::random(shape, 1, 1);
  auto planes = Array<T>::random({n, c, h, w}, 2, 3);
  const Array<T> before = planes;
  kernels::nhwc_to_nchw(stream, images.view(), planes.grad(mode));
  for (std::int64_t b = 0; b < n; ++b)
    for (std::int64_t y = 0; y < h; ++y)
      for (std::int64_t x = 0; x < w; ++x)
        for (std::int64_t k = 0; k < c; ++k) {
          const std::size_t to = at(planes.shape(), b, k, y, x);
          ASSERT_EQ(planes[to],
                    images[at(shape, b, y, x, k)] + (mode == GradMode::accumulate ? before[to] : T{0}));
        }
  auto back = Array<T>::random(shape, 3, 1);
  const Array<T> back_before = back;
  kernels::nchw_to_nhwc(stream, planes.view(), back.grad(mode));
  for (std::int64_t b = 0; b < n; ++b)
    for (std::int64_t y = 0; y < h; ++y)
      for (std::int64_t x = 0; x < w; ++x)
        for (std::int64_t k = 0; k < c; ++k) {
          const std::size_t to = at(shape, b, y, x, k);
          ASSERT_EQ(back[to], planes[at(planes.shape(), b, k, y, x)] +
                                  (mode == GradMode::accumulate ? back_before[to] : T{0}));
        }
}

TEST(Layouts, ChannelsLastToChannelsFirstAndBack) {
  for (const Shape& shape : {Shape{1, 1, 1, 1}, {2, 5, 5, 16}, {3, 7, 3, 17}, {2, 16, 16, 33}, {0, 5, 5, 3}})
    for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
      SCOPED_TRACE(shape.text());
      check_layouts<float>(shape, mode);
      check_layouts<double>(shape, mode);
    }
}

}  // namespace
}  // namespace convoy

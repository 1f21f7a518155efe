// Compares kernels/pool2d.h on the GPU with the CPU.
#include "convoy/kernels/pool2d.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "convoy/kernels/base/random.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ComputeType;
using testing::DeviceArray;
using testing::expect_rounded;
using testing::expect_rounded_near;
using testing::unit_roundoff;

struct Case {
  std::int64_t n, h, w, c;
  int kernel, stride, padding;

  Shape x() const { return {n, h, w, c}; }
  Shape y() const {
    return {n, (h + 2 * padding - kernel) / stride + 1, (w + 2 * padding - kernel) / stride + 1, c};
  }
  Pool2dOptions options() const { return {.kernel = kernel, .stride = stride, .padding = padding}; }
};

std::ostream& operator<<(std::ostream& out, const Case& s) {
  return out << s.x().text() << " kernel " << s.kernel << " stride " << s.stride << " padding " << s.padding;
}

// n, h, w, c, kernel, stride, padding. 8, 16 and 24 channels come in packs for every type, odd numbers for
// none.
const Case kCases[] = {
    {1, 1, 1, 1, 1, 1, 0},                            // one number
    {2, 8, 8, 16, 2, 2, 0},                           // LeNet
    {3, 7, 9, 5, 2, 2, 0},                            // the last row and column in no window
    {2, 11, 11, 24, 3, 2, 1},                         // ResNet's stem: overlapping, padded
    {2, 6, 5, 17, 3, 1, 1},   {1, 7, 5, 8, 2, 3, 0},  // pixels between the windows
    {2, 5, 4, 3, 5, 1, 2},                            // windows larger than the image
    {1, 9, 9, 6, 4, 4, 2},    {1, 9, 10, 16, 7, 2, 3}, {0, 8, 8, 16, 2, 2, 0},  // no images
    {1, 20, 19, 8, 17, 2, 1},                                                   // taps in i32
};

template <class T>
class CudaPool2d : public testing::GpuTest {
 protected:
  /// Calls f(case, offset) for each case at an aligned address, and for each tail and two cases at an
  /// unaligned address.
  template <class F>
  void for_each_case(F f) {
    for (const Case& s : kCases) f(s, std::size_t{0});
    for (const std::int64_t size : testing::kTailSizes) f(Case{1, 1, size, 1, 1, 1, 0}, std::size_t{0});
    f(Case{2, 8, 8, 16, 2, 2, 0}, std::size_t{1});
    f(Case{2, 6, 5, 17, 3, 1, 1}, std::size_t{3});
  }

  /// Returns an array with few distinct values, so that there are ties, all below the padding's zero.
  static Array<T> with_equals(Shape shape) {
    auto x = Array<T>::random(shape, 1);
    for (T& value : x) value = static_cast<T>(std::round(testing::value_of(value) * 3) - 10);
    return x;
  }

  void check_max(const Array<T>& x, const Case& s, std::size_t offset) {
    if (kernels::type_of_taps(s.options()) == DType::u8) return check_max_of<std::uint8_t>(x, s, offset);
    check_max_of<std::int32_t>(x, s, offset);
  }

  template <class Tap>
  void check_max_of(const Array<T>& x, const Case& s, std::size_t offset) {
    using C = ComputeType<T>;
    CpuStream cpu({.threads = 1});
    Array<C> y(s.y());
    Array<Tap> taps(s.y());
    kernels::max_pool2d_forward(cpu, x.template to<C>().view(), y.view(), taps.view(), s.options());

    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<T> gpu_x(gpu, x, offset);
    const auto dy = Array<T>::random(s.y(), 2);
    const DeviceArray<T> gpu_dy(gpu, dy, offset);
    this->for_each_order([&] {
      const DeviceArray<T> gpu_y(gpu, s.y(), offset);
      const DeviceArray<Tap> gpu_taps(gpu, s.y(), offset);
      on(gpu.stream(), [&](auto& stream) {
        kernels::max_pool2d_forward(stream, gpu_x.view(), gpu_y.view(), gpu_taps.view(), s.options());
      });
      expect_rounded(gpu_y.values(), y);
      testing::expect_same_bits(gpu_taps.values(), taps);
      for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
        const auto before = Array<T>::random(s.x(), 3);
        auto dx = before.template to<C>();
        kernels::max_pool2d_backward(cpu, dy.template to<C>().view(), taps.view(), dx.grad(mode),
                                     s.options());
        const DeviceArray<T> gpu_dx(gpu, before, offset);
        on(gpu.stream(), [&](auto& stream) {
          kernels::max_pool2d_backward(stream, gpu_dy.view(), gpu_taps.view(), gpu_dx.grad(mode),
                                       s.options());
        });
        expect_rounded(gpu_dx.values(), dx);  // each pixel sums its windows in the CPU's order
      }
    });
  }
};

using Types = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaPool2d, Types);

TYPED_TEST(CudaPool2d, MaxAndItsGradient) {
  this->for_each_case([&](const Case& s, std::size_t offset) {
    SCOPED_TRACE(::testing::Message() << s << " at " << offset);
    this->check_max(this->with_equals(s.x()), s, offset);
  });
}

TYPED_TEST(CudaPool2d, FirstOfEqualsAndFirstNanWin) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double values[] = {NAN, -infinity, 1, 1, 0.0, -0.0, infinity, 2};
  for (const std::int64_t channels : {1, 8}) {
    const Case s{3, 8, 8, channels, 3, 1, 1};
    Array<TypeParam> x(s.x());
    const Random random{.seed = 1};
    for (std::size_t e = 0; e < x.size(); ++e)
      x[e] = static_cast<TypeParam>(values[random.words(e)[0] % std::size(values)]);
    this->check_max(x, s, 0);
    // In a third of the windows, every pixel is NaN or minus infinity.
    for (std::size_t e = 0; e < x.size() / 3; ++e)
      x[e] = static_cast<TypeParam>(values[random.words(e)[1] % 2]);
    this->check_max(x, s, 0);
  }
}

TYPED_TEST(CudaPool2d, AverageAndItsGradient) {
  using T = TypeParam;
  using C = ComputeType<T>;
  CpuStream cpu({.threads = 1});
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  this->for_each_case([&](const Case& s, std::size_t offset) {
    SCOPED_TRACE(::testing::Message() << s << " at " << offset);
    const auto x = Array<T>::random(s.x(), 1);
    const auto dy = Array<T>::random(s.y(), 2);
    Array<C> y(s.y());
    kernels::avg_pool2d_forward(cpu, x.template to<C>().view(), y.view(), s.options());
    const DeviceArray<T> gpu_x(gpu, x, offset), gpu_dy(gpu, dy, offset);
    this->for_each_order([&] {
      const DeviceArray<T> gpu_y(gpu, s.y(), offset);
      on(gpu.stream(),
         [&](auto& stream) { kernels::avg_pool2d_forward(stream, gpu_x.view(), gpu_y.view(), s.options()); });
      expect_rounded(gpu_y.values(), y);
    });
    for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
      const auto before = Array<T>::random(s.x(), 3);
      auto dx = before.template to<C>();
      kernels::avg_pool2d_backward(cpu, dy.template to<C>().view(), dx.grad(mode), s.options());
      testing::Repeats<T> repeats;
      this->for_each_order([&] {
        const DeviceArray<T> gpu_dx(gpu, before, offset);
        on(gpu.stream(), [&](auto& stream) {
          kernels::avg_pool2d_backward(stream, gpu_dy.view(), gpu_dx.grad(mode), s.options());
        });
        const Array<T> found = gpu_dx.values();
        // The CPU divides each of at most kernel^2 terms, which are then below 1 / kernel^2. The GPU divides
        // their sum. Both have kernel^2 roundings of numbers below 1, and two of the sum with the previous
        // value, below 2.
        expect_rounded_near(found, dx, (2 * s.kernel * s.kernel + 4) * unit_roundoff<C>());
        repeats.expect_same(found);
      });
    }
  });
}

TYPED_TEST(CudaPool2d, GlobalAverageAndItsGradient) {
  using T = TypeParam;
  using C = ComputeType<T>;
  CpuStream cpu({.threads = 1});
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  // Sizes around the 32 packs and 256 threads of a block; one pixel; more pixels than one block of backward
  // processes.
  const Shape shapes[] = {{1, 1, 1, 1},  {3, 8, 8, 64},   {2, 7, 5, 130},  {4, 4, 4, 3},
                          {2, 1, 1, 33}, {1, 15, 17, 31}, {2, 3, 3, 264},  {1, 43, 51, 1},
                          {1, 9, 30, 8}, {0, 4, 4, 8},    {1, 2, 2, 1025}, {70, 2, 2, 16}};
  for (const Shape& shape : shapes)
    for (const std::size_t offset : {0u, 1u}) {
      SCOPED_TRACE(shape.text() + " at " + std::to_string(offset));
      const auto x = Array<T>::random(shape, 1);
      const auto dy = Array<T>::random({shape[0], shape[3]}, 2);
      Array<C> y(dy.shape());
      kernels::global_avg_pool2d_forward(cpu, x.template to<C>().view(), y.view());
      const DeviceArray<T> gpu_x(gpu, x, offset), gpu_dy(gpu, dy, offset);
      testing::Repeats<T> repeats;
      this->for_each_order([&] {
        const DeviceArray<T> gpu_y(gpu, dy.shape(), offset);
        on(gpu.stream(),
           [&](auto& stream) { kernels::global_avg_pool2d_forward(stream, gpu_x.view(), gpu_y.view()); });
        const Array<T> found = gpu_y.values();
        // A thread sums at most an eighth of the pixels, and the block combines sums in 8 tree levels. Values
        // are below 1, and the sum is divided once.
        const double additions = static_cast<double>(shape[1] * shape[2]) / 8 + 8 + 2;
        expect_rounded_near(found, y, additions * unit_roundoff<C>());
        repeats.expect_same(found);
        for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
          const auto before = Array<T>::random(shape, 3);
          auto dx = before.template to<C>();
          kernels::global_avg_pool2d_backward(cpu, dy.template to<C>().view(), dx.grad(mode));
          const DeviceArray<T> gpu_dx(gpu, before, offset);
          on(gpu.stream(), [&](auto& stream) {
            kernels::global_avg_pool2d_backward(stream, gpu_dy.view(), gpu_dx.grad(mode));
          });
          expect_rounded(gpu_dx.values(), dx);
        }
      });
    }
}

TYPED_TEST(CudaPool2d, LayoutsOfImages) {
  using T = TypeParam;
  using C = ComputeType<T>;
  CpuStream cpu({.threads = 1});
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  std::vector<Shape> shapes = {{2, 5, 7, 3}, {3, 8, 8, 16}, {5, 3, 11, 65}, {0, 4, 4, 3}, {40, 1, 2, 2}};
  for (const std::int64_t size : testing::kTailSizes) {
    shapes.push_back({1, 1, size, 5});
    shapes.push_back({1, 3, 1, size});
  }
  for (const Shape& shape : shapes)
    for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
      const std::size_t offset = mode == GradMode::accumulate ? 1 : 0;
      SCOPED_TRACE(shape.text() + (mode == GradMode::accumulate ? " added, at 1" : ""));
      const Shape planes{shape[0], shape[3], shape[1], shape[2]};
      const auto images = Array<T>::random(shape, 1);
      const auto before = Array<T>::random(planes, 2);
      const auto images_before = Array<T>::random(shape, 3);
      auto expected = before.template to<C>();
      kernels::nhwc_to_nchw(cpu, images.template to<C>().view(), expected.grad(mode));
      auto back = images_before.template to<C>();
      kernels::nchw_to_nhwc(cpu, before.template to<C>().view(), back.grad(mode));
      const DeviceArray<T> gpu_images(gpu, images, offset), gpu_planes(gpu, before, offset);
      this->for_each_order([&] {
        const DeviceArray<T> to_planes(gpu, before, offset), to_images(gpu, images_before, offset);
        on(gpu.stream(), [&](auto& stream) {
          kernels::nhwc_to_nchw(stream, gpu_images.view(), to_planes.grad(mode));
          kernels::nchw_to_nhwc(stream, gpu_planes.view(), to_images.grad(mode));
        });
        expect_rounded(to_planes.values(), expected);
        expect_rounded(to_images.values(), back);
      });
    }
}

TYPED_TEST(CudaPool2d, LayoutsOfFilters) {
  const std::int64_t o = 5, kh = 3, kw = 2, i = 7;
  const auto filters = Array<TypeParam>::random({o, kh, kw, i}, 1);
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<TypeParam> ohwi(gpu, filters), oihw(gpu, {o, i, kh, kw}), again(gpu, {o, kh, kw, i});
  on(gpu.stream(), [&](auto& stream) {
    kernels::nhwc_to_nchw(stream, ohwi.view(), oihw.grad());
    kernels::nchw_to_nhwc(stream, oihw.view(), again.grad());
  });
  const Array<TypeParam> found = oihw.values();
  for (std::int64_t a = 0; a < o; ++a)
    for (std::int64_t tap = 0; tap < kh * kw; ++tap)
      for (std::int64_t b = 0; b < i; ++b)
        ASSERT_EQ(testing::value_of(found[static_cast<std::size_t>((a * i + b) * kh * kw + tap)]),
                  testing::value_of(filters[static_cast<std::size_t>((a * kh * kw + tap) * i + b)]));
  testing::expect_same_bits(again.values(), filters);
}

TYPED_TEST(CudaPool2d, DoesNothingForUnwantedGradients) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<TypeParam> dy(gpu, Array<TypeParam>({1, 2, 2, 4}));
  const DeviceArray<std::uint8_t> taps(gpu, Array<std::uint8_t>({1, 2, 2, 4}));
  on(gpu.stream(), [&](auto& stream) {
    kernels::max_pool2d_backward(stream, dy.view(), taps.view(), GradView(), {});
    kernels::avg_pool2d_backward(stream, dy.view(), GradView(), {});
    kernels::global_avg_pool2d_backward(stream, dy.view(), GradView());
    kernels::nhwc_to_nchw(stream, dy.view(), GradView());
    kernels::nchw_to_nhwc(stream, dy.view(), GradView());
  });
  gpu.synchronize();
}

}  // namespace
}  // namespace convoy

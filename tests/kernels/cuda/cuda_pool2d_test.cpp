// Compares ties, NaN and layouts of kernels/pool2d.h on the GPU with the CPU. Values are tested by the op cases.
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

struct Case {
  std::int64_t n, h, w, c;
  int kernel, stride, padding;

  Shape x() const { return {n, h, w, c}; }
  Shape y() const {
    return {n, (h + 2 * padding - kernel) / stride + 1, (w + 2 * padding - kernel) / stride + 1, c};
  }
  Pool2dOptions options() const { return {.kernel = kernel, .stride = stride, .padding = padding}; }
};

template <class T>
class CudaPool2d : public testing::GpuTest {
 protected:
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

using CudaPool2dTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaPool2d, CudaPool2dTypes);

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
    this->check_max(x, s, 1);  // unaligned
    // In a third of the windows, every pixel is NaN or minus infinity.
    for (std::size_t e = 0; e < x.size() / 3; ++e)
      x[e] = static_cast<TypeParam>(values[random.words(e)[1] % 2]);
    this->check_max(x, s, 0);
  }
}

TYPED_TEST(CudaPool2d, DoesNothingForUnwantedGradients) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<TypeParam> dy(gpu, Array<TypeParam>({1, 2, 2, 4}));
  const DeviceArray<std::uint8_t> taps(gpu, Array<std::uint8_t>({1, 2, 2, 4}));
  on(gpu.stream(), [&](auto& stream) {
    kernels::max_pool2d_backward(stream, dy.view(), taps.view(), GradView(), {});
    kernels::avg_pool2d_backward(stream, dy.view(), GradView(), {});
    kernels::global_avg_pool2d_backward(stream, dy.view(), GradView());
  });
  gpu.synchronize();
}

}  // namespace
}  // namespace convoy

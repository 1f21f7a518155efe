// Compares kernels/conv2d.h on the GPU with the CPU.
#include "convoy/kernels/conv2d.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/conv2d_cases.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ConvCase;
using testing::DeviceArray;
using testing::dot_tolerance;
using testing::expect_rounded_near;
using testing::Repeats;
using testing::unit_roundoff;

/// The three directions of the reference, and of the functions that programs call.
struct Reference {
  static constexpr auto forward = [](auto&&... a) { kernels::conv2d_forward_reference(a...); };
  static constexpr auto backward_data = [](auto&&... a) { kernels::conv2d_backward_data_reference(a...); };
  static constexpr auto backward_filter = [](auto&&... a) {
    kernels::conv2d_backward_filter_reference(a...);
  };
};
struct Default {
  static constexpr auto forward = [](auto&&... a) { kernels::conv2d_forward(a...); };
  static constexpr auto backward_data = [](auto&&... a) { kernels::conv2d_backward_data(a...); };
  static constexpr auto backward_filter = [](auto&&... a) { kernels::conv2d_backward_filter(a...); };
};

template <class T>
class CudaConv2d : public testing::GpuTest {
 protected:
  /// Compares each direction on the GPU with the CPU in f64. The device is deterministic, so the order of
  /// sums is the same in every run.
  template <class ConvAlgorithm>
  void compare(const ConvCase& c, std::size_t offset = 0,
               const CudaOptions& options = {.deterministic = true}) {
    SCOPED_TRACE(::testing::Message() << c << " at " << offset);
    options_ = options;
    const auto x = Array<T>::random(c.x(), 1);
    const auto filter = Array<T>::random(c.filter(), 2);
    const auto bias = Array<T>::random({c.o}, 3);
    const auto dy = Array<T>::random(c.y(), 4);
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<T> gpu_x(gpu, x, offset), gpu_filter(gpu, filter, offset), gpu_bias(gpu, bias, offset),
        gpu_dy(gpu, dy, offset);
    const auto exact_x = x.template to<double>(), exact_filter = filter.template to<double>(),
               exact_bias = bias.template to<double>(), exact_dy = dy.template to<double>();
    CpuStream cpu({.threads = 1});

    for (const bool relu : {false, true})
      for (const bool with_bias : {false, true}) {
        const auto view = [&](const auto& array) {
          return with_bias ? ConstView(array.view()) : ConstView();
        };
        Conv2dOptions forward = c.options();
        forward.relu = relu;
        Array<double> y(c.y());
        kernels::conv2d_forward_reference(cpu, exact_x.view(), exact_filter.view(), view(exact_bias),
                                          y.view(), forward);
        check(c.y(), GradMode::overwrite, y, c.kh * c.kw * c.i, offset, [&](auto& stream, GradView out) {
          ConvAlgorithm::forward(stream, gpu_x.view(), gpu_filter.view(), view(gpu_bias), out, forward);
        });
      }
    for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
      Array<double> dx = before(c.x()).template to<double>();
      kernels::conv2d_backward_data_reference(cpu, exact_dy.view(), exact_filter.view(), dx.grad(mode),
                                              c.options());
      check(c.x(), mode, dx, c.kh * c.kw * c.o, offset, [&](auto& stream, GradView out) {
        ConvAlgorithm::backward_data(stream, gpu_dy.view(), gpu_filter.view(), out, c.options());
      });
      Array<double> dfilter = before(c.filter()).template to<double>();
      kernels::conv2d_backward_filter_reference(cpu, exact_dy.view(), exact_x.view(), dfilter.grad(mode),
                                                c.options());
      check(c.filter(), mode, dfilter, c.n * c.oh() * c.ow(), offset, [&](auto& stream, GradView out) {
        ConvAlgorithm::backward_filter(stream, gpu_dy.view(), gpu_x.view(), out, c.options());
      });
    }
  }

 private:
  static Array<T> before(Shape shape) { return Array<T>::random(shape, 5); }

  template <class F>
  void check(Shape shape, GradMode mode, const Array<double>& expected, std::int64_t terms,
             std::size_t offset, F run) {
    const DeviceContext gpu = DeviceContext::create_cuda(0, options_);
    // A sum may be rounded before a bias or a gradient of magnitude at most 1 is added.
    double largest = 1;
    for (const double value : expected) largest = std::max(largest, std::abs(value) + 1);
    const double tolerance = dot_tolerance<T>(terms) + unit_roundoff<T>() * largest;
    Repeats<T> repeats;
    this->for_each_order([&] {
      const DeviceArray<T> out(gpu, before(shape), offset);
      on(gpu.stream(), [&](auto& stream) { run(stream, out.grad(mode)); });
      const Array<T> found = out.values();
      expect_rounded_near(found, expected, tolerance);
      if (options_.deterministic) repeats.expect_same(found);
    });
  }

  CudaOptions options_;
};

using CudaConv2dTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaConv2d, CudaConv2dTypes);

TYPED_TEST(CudaConv2d, ReferenceAgrees) {
  for (const ConvCase& c : testing::kConvCases) this->template compare<Reference>(c);
  this->template compare<Reference>({0, 8, 8, 16, 16, 3, 3, 1, 1});  // no images
}

TYPED_TEST(CudaConv2d, ReferenceSupportsUnalignedArrays) {
  for (const std::size_t offset : {1u, 3u}) {
    this->template compare<Reference>({2, 6, 6, 16, 16, 3, 3, 1, 1}, offset);
    this->template compare<Reference>({2, 7, 5, 3, 5, 3, 3, 2, 1}, offset);
  }
}

TYPED_TEST(CudaConv2d, Agrees) {
  for (const ConvCase& c : testing::kConvCases) this->template compare<Default>(c);
  this->template compare<Default>({0, 8, 8, 16, 16, 3, 3, 1, 1});  // no images
}

TYPED_TEST(CudaConv2d, SupportsUnalignedArrays) {
  for (const std::size_t offset : {1u, 3u}) {
    this->template compare<Default>({2, 6, 6, 16, 16, 3, 3, 1, 1}, offset);
    this->template compare<Default>({2, 7, 5, 3, 5, 3, 3, 2, 1}, offset);
  }
}

TYPED_TEST(CudaConv2d, DoesNothingForUnwantedGradients) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<TypeParam> a(gpu, Array<TypeParam>({1, 1, 1, 1}));
  on(gpu.stream(), [&](auto& stream) {
    kernels::conv2d_backward_data(stream, a.view(), a.view(), GradView(), {});
    kernels::conv2d_backward_filter(stream, a.view(), a.view(), GradView(), {});
  });
  gpu.synchronize();
}

/// Excludes f64, which always uses the reference kernels.
template <class T>
class TimedCudaConv2d : public CudaConv2d<T> {};
using TimedTypes = ::testing::Types<float, float16, bfloat16>;
TYPED_TEST_SUITE(TimedCudaConv2d, TimedTypes);

TYPED_TEST(TimedCudaConv2d, AgreesWithFastestEngine) {
  for (const ConvCase& c : testing::kConvCases) this->template compare<Default>(c, 0, {});
}

}  // namespace
}  // namespace convoy

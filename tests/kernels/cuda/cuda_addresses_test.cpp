// Results must not depend on whether arrays are aligned for 16-byte loads: the elements that a thread adds are
// chosen by shape and type.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/normalization.h"
#include "convoy/kernels/pool2d.h"
#include "convoy/kernels/reduce.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ComputeType;
using testing::DeviceArray;

/// The shapes of a call's arrays of elements, and of its results: sums in the compute type.
struct Reduction {
  std::string name;
  std::vector<Shape> arrays;
  std::vector<Shape> results;
  std::function<void(CudaStream&, const std::vector<View>& x, const std::vector<View>& y)> run;
};

// With 4,096 rows of 64 channels, a grid of packs has another number of blocks than one of single elements.
std::vector<Reduction> reductions() {
  const Shape rows{4096, 64}, channels{64}, images{2, 16, 16, 8};
  const auto batch_norm_backward = [](CudaStream& s, auto& x, auto& y) {
    kernels::batch_norm_backward(s, {.gamma = y[0]}, {x[0], x[1], {}}, {y[1], y[2], {}},
                                 {.gamma = GradView(y[3]), .beta = GradView(y[4])});
  };
  return {
      {"sum_rows",
       {rows},
       {channels},
       [](auto& s, auto& x, auto& y) { kernels::sum_rows(s, x[0], GradView(y[0])); }},
      {"batch_norm_forward",
       {rows, rows},
       {channels, channels, channels, channels, channels, channels, {2, 64}},
       [](auto& s, auto& x, auto& y) {
         const kernels::BatchNorm norm{y[0], y[1], y[4], y[5], {}};
         kernels::batch_norm_forward(s, norm, x[0], {}, {y[2], y[3], y[6]}, x[1]);
       }},
      {"batch_norm_backward",
       {rows, rows},
       {channels, channels, channels, channels, channels},
       batch_norm_backward},
      {"layer_norm_backward",
       {rows, rows},
       {channels, {4096, 1, 2}, {4096, 1}, channels, channels},
       [](auto& s, auto& x, auto& y) {
         kernels::group_norm_backward(s, x[0], x[1], y[0], y[1], y[2], {}, GradView(y[3]), GradView(y[4]));
       }},
      {"global_avg_pool2d",
       {images, {2, 8}},
       {},
       [](auto& s, auto& x, auto&) { kernels::global_avg_pool2d_forward(s, x[0], x[1]); }},
      {"sum", {{20003}, {1}}, {}, [](auto& s, auto& x, auto&) { kernels::sum(s, x[0], GradView(x[1])); }},
      {"conv2d_backward_filter",
       {images, images, {8, 3, 3, 8}},
       {},
       [](auto& s, auto& x, auto&) {
         kernels::conv2d_backward_filter_reference(s, x[0], x[1], GradView(x[2]), {.padding = 1});
       }},
  };
}

template <class T>
class CudaAddresses : public testing::GpuTest {
 protected:
  using C = ComputeType<T>;

  /// Returns the bytes of all arrays after a call with arrays that begin `offset` elements after an aligned
  /// address.
  std::vector<std::byte> bytes_of(const Reduction& reduction, std::size_t offset) const {
    std::vector<std::unique_ptr<DeviceArray<T>>> arrays;
    std::vector<std::unique_ptr<DeviceArray<C>>> results;
    std::vector<View> x, y;
    std::uint64_t seed = 1;
    for (const Shape& shape : reduction.arrays) {
      arrays.push_back(std::make_unique<DeviceArray<T>>(gpu_, Array<T>::random(shape, seed++), offset));
      x.push_back(arrays.back()->view());
    }
    for (const Shape& shape : reduction.results) {
      results.push_back(std::make_unique<DeviceArray<C>>(gpu_, Array<C>::random(shape, seed++), offset));
      y.push_back(results.back()->view());
    }
    on(gpu_.stream(), [&](auto& stream) {
      if constexpr (std::is_same_v<decltype(stream), CudaStream&>) reduction.run(stream, x, y);
    });
    std::vector<std::byte> all;
    const auto append = [&](const View& view) {
      const auto* const begin = static_cast<const std::byte*>(view.data);
      all.insert(all.end(), begin, begin + view.bytes());
    };
    for (const auto& array : arrays) append(array->values().view());
    for (const auto& result : results) append(result->values().view());
    return all;
  }

  const DeviceContext gpu_ = DeviceContext::create_cuda(0);
};
using CudaAddressesTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaAddresses, CudaAddressesTypes);

TYPED_TEST(CudaAddresses, DoNotChangeTheBitsOfReductions) {
  for (const Reduction& reduction : reductions()) {
    SCOPED_TRACE(reduction.name);
    EXPECT_EQ(this->bytes_of(reduction, 0), this->bytes_of(reduction, 1));
  }
}

}  // namespace
}  // namespace convoy

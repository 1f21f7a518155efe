// Tests of kernels/gather.h on the GPU: every element type, indices out of range, and sums of many terms.
#include "convoy/kernels/gather.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "convoy/kernels/base/random.h"
#include "convoy/kernels/broadcast.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::value_of;

Array<std::int32_t> drawn_indices(const Shape& shape, std::int64_t size) {
  Array<std::int32_t> indices(shape);
  const Random random{.seed = 5};
  for (std::size_t i = 0; i < indices.size(); ++i)
    indices[i] = static_cast<std::int32_t>(random.words(i)[0] % static_cast<std::uint64_t>(size));
  return indices;
}

template <class T>
Array<T> numbered(const Shape& shape) {
  Array<T> x(shape);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(static_cast<float>(i % 201));
  return x;
}

template <class T>
class CudaGather : public testing::GpuTest {};

using CudaGatherTypes = ::testing::Types<std::uint8_t, std::int32_t, float16, bfloat16, float, double>;
TYPED_TEST_SUITE(CudaGather, CudaGatherTypes);

TYPED_TEST(CudaGather, SelectsSlices) {
  using T = TypeParam;
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  // Rows of whole packs of 16 bytes, of smaller packs, and at an unaligned address.
  for (const std::int64_t columns : {1, 2, 4, 8, 16, 33, 257})
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
      SCOPED_TRACE(columns);
      const Array<T> x = numbered<T>({2, 5, columns});
      const Array<std::int32_t> indices = drawn_indices({7}, 5);
      const DeviceArray<T> gpu_x(gpu, x, offset), y(gpu, {2, 7, columns}, offset);
      const DeviceArray<std::int32_t> gpu_indices(gpu, indices);
      on(gpu.stream(),
         [&](auto& s) { kernels::index_select_forward(s, gpu_x.view(), gpu_indices.view(), y.view()); });
      const Array<T> found = y.values();
      for (std::size_t o = 0; o < 2; ++o)
        for (std::size_t k = 0; k < 7; ++k)
          for (std::size_t d = 0; d < static_cast<std::size_t>(columns); ++d) {
            const std::size_t row = o * 5 + static_cast<std::size_t>(indices[k]);
            ASSERT_EQ(value_of(found[(o * 7 + k) * static_cast<std::size_t>(columns) + d]),
                      value_of(x[row * static_cast<std::size_t>(columns) + d]));
          }
    }
}

TYPED_TEST(CudaGather, ReadsNothingForIndicesOutOfRange) {
  using T = TypeParam;
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<T> x(gpu, numbered<T>({1, 2, 3})), selected(gpu, {1, 4, 3});
  const DeviceArray<std::int32_t> indices(gpu, Array<std::int32_t>({4}, {1, -1, 2, 1 << 30}));
  on(gpu.stream(),
     [&](auto& s) { kernels::index_select_forward(s, x.view(), indices.view(), selected.view()); });
  const auto is_invalid = [](T value) {
    return is_floating(dtype_of<T>) ? std::isnan(value_of(value)) : value_of(value) == 0;
  };
  const Array<T> rows = selected.values();
  for (std::size_t d = 0; d < 3; ++d) EXPECT_EQ(value_of(rows[d]), 3 + static_cast<double>(d));
  for (std::size_t i = 3; i < rows.size(); ++i) EXPECT_TRUE(is_invalid(rows[i])) << i;
}

class CudaGatherSums : public testing::GpuTest {
 protected:
  /// Compares the sums of random terms with those in f64 on the host. Indices out of range have no terms.
  void check(const Array<std::int32_t>& indices, std::int64_t destinations, std::int64_t columns) {
    const std::int64_t terms = static_cast<std::int64_t>(indices.size());
    const auto dy = Array<float>::random({1, terms, columns}, 1);
    Array<double> expected({1, destinations, columns}), magnitude({1, destinations, columns});
    for (std::size_t k = 0; k < indices.size(); ++k) {
      if (indices[k] < 0 || indices[k] >= destinations) continue;
      for (std::size_t d = 0; d < static_cast<std::size_t>(columns); ++d) {
        const std::size_t to = static_cast<std::size_t>(indices[k]) * static_cast<std::size_t>(columns) + d;
        const double term = dy[k * static_cast<std::size_t>(columns) + d];
        expected[to] += term;
        magnitude[to] += std::abs(term);
      }
    }
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<float> gpu_dy(gpu, dy), dx(gpu, {1, destinations, columns});
    const DeviceArray<std::int32_t> gpu_indices(gpu, indices);
    on(gpu.stream(),
       [&](auto& s) { kernels::index_select_backward(s, gpu_dy.view(), gpu_indices.view(), dx.grad()); });
    const Array<float> found = dx.values();
    // What an addition loses is added as well, so that the result is rounded about once.
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 0x1p-23 * std::abs(expected[i]) + 0x1p-40 * magnitude[i]) << i;
  }
};

TEST_F(CudaGatherSums, OfIndicesOutOfRangeAreEmpty) {
  Array<std::int32_t> indices = drawn_indices({100}, 7);
  for (std::size_t k = 0; k < indices.size(); k += 3) indices[k] = k % 2 == 0 ? -1 : 7;
  check(indices, 7, 5);
  for (std::int32_t& index : indices) index = 1 << 30;
  check(indices, 7, 5);
}

TEST_F(CudaGatherSums, OfOneIndexAreExact) {
  for (const std::int64_t terms : {31, 32, 33, 64, 65, 1000}) {
    SCOPED_TRACE(terms);
    check(Array<std::int32_t>({terms}, 3), 5, 4);
  }
  Array<std::int32_t> indices = drawn_indices({999}, 50);
  for (std::size_t k = 0; k < 700; ++k) indices[k] = 20;  // most tokens are padding
  check(indices, 50, 3);
}

TEST_F(CudaGatherSums, OfManyDestinations) { check(drawn_indices({900}, 5000), 5000, 2); }

TEST_F(CudaGatherSums, RepeatInEveryOrder) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const auto dy = Array<float>::random({2, 300, 8}, 1), before = Array<float>::random({2, 40, 8}, 2);
  const DeviceArray<float> gpu_dy(gpu, dy);
  const DeviceArray<std::int32_t> indices(gpu, drawn_indices({300}, 40));
  for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
    testing::Repeats<float> repeats;
    for_each_order([&] {
      const DeviceArray<float> dx(gpu, before);
      on(gpu.stream(),
         [&](auto& s) { kernels::index_select_backward(s, gpu_dy.view(), indices.view(), dx.grad(mode)); });
      repeats.expect_same(dx.values());
    });
  }
}

using kernels::BinaryOp;

template <class T>
class CudaBroadcast : public testing::GpuTest {};
using BroadcastTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaBroadcast, BroadcastTypes);

template <class T>
Array<T> filled(const Shape& shape, float value) {
  return Array<T>(shape, T(value));
}

// All values and results are exact in every type.
TYPED_TEST(CudaBroadcast, AddsToTheResultIfAsked) {
  using T = TypeParam;
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const struct {
    BinaryOp op;
    float x, y, result;
  } cases[] = {{BinaryOp::add, 3, 2, 5},           {BinaryOp::sub, 3, 2, 1},
               {BinaryOp::mul, 3, 2, 6},           {BinaryOp::div, 3, 2, 1.5F},
               {BinaryOp::maximum, 3, 2, 3},       {BinaryOp::minimum, 3, 2, 2},
               {BinaryOp::squared_error, 3, 2, 1}, {BinaryOp::binary_cross_entropy_with_logits, 100, 0, 100},
               {BinaryOp::kl_divergence, 3, 1, -3}};
  for (const Shape& shape : {Shape{3, 11}, Shape{11}})
    for (const auto& each : cases) {
      const DeviceArray<T> x(gpu, filled<T>({3, 11}, each.x)), y(gpu, filled<T>(shape, each.y)),
          z(gpu, filled<T>({3, 11}, 10));
      on(gpu.stream(), [&](auto& stream) {
        kernels::binary(stream, each.op, x.view(), y.view(), GradView(z.view(), GradMode::accumulate));
      });
      testing::expect_same_bits(z.values(), filled<T>({3, 11}, 10 + each.result));
    }
}

}  // namespace
}  // namespace convoy

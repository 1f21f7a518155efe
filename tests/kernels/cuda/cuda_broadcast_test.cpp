// The modes of kernels/broadcast.h on a GPU. The op cases of tests/engine compare values with the CPU.
#include "convoy/kernels/broadcast.h"

#include <gtest/gtest.h>

#include "convoy/kernels/runtime/cuda/stream.h"
#include "tests/kernels/device_array.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using kernels::BinaryOp;
using testing::Array;
using testing::DeviceArray;

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
  const std::pair<BinaryOp, float> expected[] = {{BinaryOp::add, 5},     {BinaryOp::sub, 1},
                                                 {BinaryOp::mul, 6},     {BinaryOp::div, 1.5F},
                                                 {BinaryOp::maximum, 3}, {BinaryOp::minimum, 2}};
  for (const Shape& shape : {Shape{3, 11}, Shape{11}})
    for (const auto& [op, result] : expected) {
      const DeviceArray<T> x(gpu, filled<T>({3, 11}, 3)), y(gpu, filled<T>(shape, 2)),
          z(gpu, filled<T>({3, 11}, 10));
      on(gpu.stream(), [&, op = op](auto& stream) {
        kernels::binary(stream, op, x.view(), y.view(), GradView(z.view(), GradMode::accumulate));
      });
      testing::expect_same_bits(z.values(), filled<T>({3, 11}, 10 + result));
    }
}

}  // namespace
}  // namespace convoy

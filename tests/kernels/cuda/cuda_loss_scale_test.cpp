// Compares kernels/loss_scale.h on the GPU with the CPU.
#include "convoy/kernels/loss_scale.h"

#include <gtest/gtest.h>

#include "tests/kernels/device_array.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;

template <class T>
class CudaLossScale : public testing::GpuTest {};

using CudaLossScaleTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaLossScale, CudaLossScaleTypes);

TYPED_TEST(CudaLossScale, ChangesLikeOnTheCpu) {
  CpuStream cpu({.threads = 1});
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const kernels::LossScaleOptions options{
      .growth = 2, .backoff = 0.5, .interval = 2, .minimum = 512, .maximum = 3000};
  Array<TypeParam> scale({1}, {TypeParam{1024}});
  Array<std::int32_t> good({1}, {0}), skipped({1}, {0}), failed({1}, {0});
  const DeviceArray<TypeParam> gpu_scale(gpu, scale);
  const DeviceArray<std::int32_t> gpu_good(gpu, good), gpu_skipped(gpu, skipped), gpu_failed(gpu, failed);
  const auto state_of = [](auto&&... numbers) { return kernels::LossScaleView{numbers.view()...}; };
  // Up to the maximum, down to the minimum, a failure there, and up again.
  for (const std::int32_t overflows : {0, 0, 0, 0, 9, 0, 1, 1, 1, 0, 0}) {
    const Array<std::int32_t> count({1}, {overflows});
    const DeviceArray<std::int32_t> gpu_count(gpu, count);
    kernels::update_loss_scale(cpu, count.view(), state_of(scale, good, skipped, failed), options);
    on(gpu.stream(), [&](auto& s) {
      kernels::update_loss_scale(s, gpu_count.view(), state_of(gpu_scale, gpu_good, gpu_skipped, gpu_failed),
                                 options);
    });
    testing::expect_same_bits(gpu_scale.values(), scale);
    testing::expect_same_bits(gpu_good.values(), good);
    testing::expect_same_bits(gpu_skipped.values(), skipped);
    testing::expect_same_bits(gpu_failed.values(), failed);
  }
  EXPECT_EQ(failed[0], 1);
  EXPECT_EQ(scale[0], 1024);
}

}  // namespace
}  // namespace convoy

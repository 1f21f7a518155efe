// Tests of kernels/top_k.h on the GPU: the same choice as on the CPU.
#include <gtest/gtest.h>

#include <limits>

#include "convoy/kernels/top_k.h"
#include "tests/kernels/device_array.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::expect_same_bits;

class CudaTopK : public testing::GpuTest {};

template <class T>
void expect_choice_of_cpu(const Array<T>& x, std::int64_t k) {
  SCOPED_TRACE(::testing::Message() << x.size() << " elements, k " << k);
  Array<std::int32_t> expected({k});
  CpuStream cpu({.threads = 1});
  // The CPU has no f16, all of whose values f32 has.
  kernels::top_k(cpu, x.template to<std::conditional_t<std::is_same_v<T, double>, double, float>>().view(),
                 expected.view());
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<T> gpu_x(gpu, x);
  const DeviceArray<std::int32_t> positions(gpu, {k});
  on(gpu.stream(), [&](auto& s) { kernels::top_k(s, gpu_x.view(), positions.view()); });
  expect_same_bits(positions.values(), expected);
}

TEST_F(CudaTopK, ChoosesAsTheCpuDoes) {
  for (const std::int64_t n : testing::kTailSizes)
    for (const std::int64_t k : {std::int64_t{0}, n / 2, n})
      expect_choice_of_cpu(Array<float>::random({n}, 1), k);
  expect_choice_of_cpu(Array<double>::random({300}, 2), 100);
  expect_choice_of_cpu(Array<float>::random({300}, 3).to<float16>(), 100);
  expect_choice_of_cpu(Array<float>::random({300}, 4).to<bfloat16>(), 100);
}

TEST_F(CudaTopK, ChoosesEqualElementsAndNanAsTheCpuDoes) {
  Array<float> x({600});
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = i % 7 == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(i % 5);
  for (const std::int64_t k : {1, 50, 100, 300, 599}) expect_choice_of_cpu(x, k);
}

}  // namespace
}  // namespace convoy

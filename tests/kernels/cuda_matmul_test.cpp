// CPU and GPU agree: kernels/matmul.h.
#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <variant>

#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;

CudaStream& cuda_stream_of(const Device& gpu) {
  return std::get<std::reference_wrapper<CudaStream>>(gpu.stream());
}

struct Sizes {
  std::int64_t m, n, k;
};

// Around the tile of 64 by 64 and its depth of 16; a vector on each side; nothing to sum up, nothing to
// write.
const Sizes kSizes[] = {{1, 1, 1},     {3, 5, 7},    {17, 1, 33},   {1, 19, 4}, {64, 64, 16}, {65, 63, 17},
                        {63, 129, 15}, {10, 64, 50}, {130, 10, 20}, {3, 4, 0},  {0, 4, 3},    {4, 0, 3}};

template <class T>
class CudaMatmul : public testing::GpuTest {
 protected:
  using Product = void (*)(CudaStream&, ConstView, ConstView, GradView, MatmulOptions);

  void compare(Product product, Sizes s, MatmulOptions options, Mode mode, std::size_t offset = 0) {
    SCOPED_TRACE(::testing::Message() << s.m << "x" << s.k << " times " << s.k << "x" << s.n
                                      << ", transposed " << options.transpose_a << options.transpose_b);
    const auto a = Array<T>::random(options.transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
    const auto b = Array<T>::random(options.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
    const Array<T> before = mode == Mode::add ? Array<T>::random({s.m, s.n}, 3)
                                              : Array<T>({s.m, s.n}, static_cast<T>(NAN));  // overwritten
    CpuStream cpu({.threads = 1});
    auto expected = before.template to<double>();
    matmul(cpu, a.template to<double>().view(), b.template to<double>().view(), expected.grad(mode), options);

    const Device gpu = Device::cuda(0);
    const DeviceArray<T> gpu_a(gpu, a, offset), gpu_b(gpu, b, offset);
    testing::Repeats<T> repeats;
    this->for_each_order([&] {
      const DeviceArray<T> c(gpu, before, offset);
      product(cuda_stream_of(gpu), gpu_a.view(), gpu_b.view(), c.grad(mode), options);
      const Array<T> found = c.values();
      testing::expect_rounded_near(found, expected, testing::dot_tolerance<T>(s.k));
      repeats.expect_same(found);
    });
  }
};

using Types = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaMatmul, Types);

TYPED_TEST(CudaMatmul, ReferenceAgreesInEveryTransposition) {
  for (const Sizes s : kSizes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const Mode mode : {Mode::write, Mode::add})
          this->compare(matmul_reference, s, {.transpose_a = ta, .transpose_b = tb}, mode);
}

TYPED_TEST(CudaMatmul, ReferenceTakesArraysThatStartAnywhere) {
  this->compare(matmul_reference, {17, 33, 20}, {}, Mode::write, 1);
  this->compare(matmul_reference, {17, 33, 20}, {.transpose_a = true, .transpose_b = true}, Mode::add, 3);
}

TYPED_TEST(CudaMatmul, AgreesInEveryTransposition) {
  for (const Sizes s : {Sizes{1, 1, 1}, {17, 33, 20}, {3, 4, 0}, {0, 4, 3}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const Mode mode : {Mode::write, Mode::add})
          this->compare(matmul, s, {.transpose_a = ta, .transpose_b = tb}, mode);
}

TYPED_TEST(CudaMatmul, UnwantedProductsAreNoWork) {
  const Device gpu = Device::cuda(0);
  const DeviceArray<TypeParam> a(gpu, Array<TypeParam>({2, 2}));
  matmul(cuda_stream_of(gpu), a.view(), a.view(), GradView());
  gpu.synchronize();
}

}  // namespace
}  // namespace convoy

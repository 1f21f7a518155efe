// Compares kernels/matmul.h on the GPU with the CPU.
#include "convoy/kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>
#include <variant>

#include "convoy/kernels/cuda/cublas/matmul.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::dot_tolerance;

CudaStream& cuda_stream_of(const DeviceContext& gpu) {
  return std::get<std::reference_wrapper<CudaStream>>(gpu.stream());
}

struct Sizes {
  std::int64_t m, n, k;
};

// Sizes around the 64x64 tile and its depth of 16; vectors on each side; empty sums; empty results.
const Sizes kSizes[] = {{1, 1, 1},     {3, 5, 7},    {17, 1, 33},   {1, 19, 4}, {64, 64, 16}, {65, 63, 17},
                        {63, 129, 15}, {10, 64, 50}, {130, 10, 20}, {3, 4, 0},  {0, 4, 3},    {4, 0, 3}};

template <class T>
class CudaMatmul : public testing::GpuTest {
 protected:
  using Matmul = void (*)(CudaStream&, ConstView, ConstView, GradView, kernels::MatmulOptions);

  /// Returns the error bound for sums of k products of uniform numbers in [-1, 1], which have the magnitude
  /// sqrt(k) / 3. cuBLASLt's kernels for Hopper round a sum to f16 or bf16 before they add it.
  static double tolerance(Matmul multiply, std::int64_t k, GradMode mode) {
    const bool rounds_twice =
        sizeof(T) == 2 && mode == GradMode::accumulate && multiply != kernels::matmul_reference;
    const double sum = 4 * std::sqrt(static_cast<double>(k)) / 3;
    return dot_tolerance<T>(k) + (rounds_twice ? testing::unit_roundoff<T>() * sum : 0);
  }

  void compare(Matmul multiply, Sizes s, kernels::MatmulOptions options, GradMode mode,
               std::size_t offset = 0) {
    SCOPED_TRACE(::testing::Message() << s.m << "x" << s.k << " times " << s.k << "x" << s.n
                                      << ", transposed " << options.transpose_a << options.transpose_b);
    const auto a = Array<T>::random(options.transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
    const auto b = Array<T>::random(options.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
    const Array<T> before = mode == GradMode::accumulate
                                ? Array<T>::random({s.m, s.n}, 3)
                                : Array<T>({s.m, s.n}, static_cast<T>(NAN));  // overwritten
    CpuStream cpu({.threads = 1});
    auto expected = before.template to<double>();
    kernels::matmul(cpu, a.template to<double>().view(), b.template to<double>().view(), expected.grad(mode),
                    options);

    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<T> gpu_a(gpu, a, offset), gpu_b(gpu, b, offset);
    testing::Repeats<T> repeats;
    this->for_each_order([&] {
      const DeviceArray<T> c(gpu, before, offset);
      multiply(cuda_stream_of(gpu), gpu_a.view(), gpu_b.view(), c.grad(mode), options);
      const Array<T> found = c.values();
      testing::expect_rounded_near(found, expected, tolerance(multiply, s.k, mode));
      repeats.expect_same(found);
    });
  }

  /// Compares a batch of 3 matrices with one GEMM per matrix on the CPU.
  void compare_batch(Matmul multiply, bool shares_a, bool shares_b, kernels::MatmulOptions options) {
    SCOPED_TRACE(::testing::Message() << "shared " << shares_a << shares_b << ", transposed "
                                      << options.transpose_a << options.transpose_b);
    constexpr std::int64_t kBatch = 3, kM = 17, kN = 66, kK = 20;
    const auto shape = [](bool shared, bool transposed, std::int64_t rows, std::int64_t columns) {
      if (transposed) std::swap(rows, columns);
      return shared ? Shape{rows, columns} : Shape{kBatch, rows, columns};
    };
    const auto a = Array<T>::random(shape(shares_a, options.transpose_a, kM, kK), 1);
    const auto b = Array<T>::random(shape(shares_b, options.transpose_b, kK, kN), 2);
    const auto before = Array<T>::random({kBatch, kM, kN}, 3);
    const auto exact_a = a.template to<double>(), exact_b = b.template to<double>();
    auto expected = before.template to<double>();
    const auto matrix = [](ConstView all, std::int64_t i) {
      const std::int64_t size = all.shape[-1] * all.shape[-2];
      return ConstView(all.as<double>() + (all.shape.rank() == 3 ? i * size : 0),
                       {all.shape[-2], all.shape[-1]}, DType::f64);
    };
    CpuStream cpu({.threads = 1});
    for (std::int64_t i = 0; i < kBatch; ++i) {
      const View c{expected.view().template as<double>() + i * kM * kN, {kM, kN}, DType::f64};
      kernels::matmul(cpu, matrix(exact_a.view(), i), matrix(exact_b.view(), i),
                      GradView(c, GradMode::accumulate), options);
    }
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<T> gpu_a(gpu, a), gpu_b(gpu, b), c(gpu, before);
    multiply(cuda_stream_of(gpu), gpu_a.view(), gpu_b.view(), c.grad(GradMode::accumulate), options);
    testing::expect_rounded_near(c.values(), expected, tolerance(multiply, kK, GradMode::accumulate));
  }

  /// Compares a product that is scaled and added to another matrix. With an offset, cuBLASLt is not used.
  void compare_sum(Sizes s, kernels::MatmulOptions options, std::size_t offset) {
    constexpr double kAlpha = 2.0315, kBeta = -4.775;
    const auto a = Array<T>::random(options.transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
    const auto b = Array<T>::random(options.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
    const auto c = Array<T>::random({s.m, s.n}, 3);
    CpuStream cpu({.threads = 1});
    Array<double> expected({s.m, s.n});
    kernels::matmul_add(cpu, kAlpha, a.template to<double>().view(), b.template to<double>().view(), kBeta,
                        c.template to<double>().view(), expected.view(), options);
    for (std::int64_t i = 0; i < expected.view().numel() && s.k == 0; ++i)
      ASSERT_EQ(expected[static_cast<std::size_t>(i)],
                kBeta * testing::value_of(c[static_cast<std::size_t>(i)]));

    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<T> gpu_a(gpu, a), gpu_b(gpu, b), gpu_c(gpu, c, offset),
        d(gpu, Array<T>({s.m, s.n}, static_cast<T>(NAN)));
    on(gpu.stream(), [&](auto& stream) {
      kernels::matmul_add(stream, kAlpha, gpu_a.view(), gpu_b.view(), kBeta, gpu_c.view(), d.view(), options);
    });
    const double product = 4 * std::sqrt(static_cast<double>(s.k)) / 3;
    testing::expect_rounded_near(d.values(), expected,
                                 kAlpha * (dot_tolerance<T>(s.k) + testing::unit_roundoff<T>() * product) +
                                     8 * testing::unit_roundoff<T>());
  }
};

using MatmulTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaMatmul, MatmulTypes);

TYPED_TEST(CudaMatmul, AddsAnotherMatrix) {
  for (const Sizes s : kSizes)
    for (const bool transposed : {false, true})
      for (const std::size_t offset : {std::size_t{0}, std::size_t{1}})
        this->compare_sum(s, {.transpose_a = transposed, .transpose_b = !transposed}, offset);
}

TYPED_TEST(CudaMatmul, BatchesAgreeWithSingleMatrices) {
  for (const auto& multiply :
       {kernels::matmul_reference,
        static_cast<void (*)(CudaStream&, ConstView, ConstView, GradView, kernels::MatmulOptions)>(
            kernels::matmul)})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        const kernels::MatmulOptions options{.transpose_a = ta, .transpose_b = tb};
        this->compare_batch(multiply, false, false, options);
        this->compare_batch(multiply, true, false, options);
        this->compare_batch(multiply, false, true, options);
      }
}

TYPED_TEST(CudaMatmul, ReferenceAgreesInEveryTransposition) {
  for (const Sizes s : kSizes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate})
          this->compare(kernels::matmul_reference, s, {.transpose_a = ta, .transpose_b = tb}, mode);
}

TYPED_TEST(CudaMatmul, ReferenceSupportsUnalignedArrays) {
  this->compare(kernels::matmul_reference, {17, 33, 20}, {}, GradMode::overwrite, 1);
  this->compare(kernels::matmul_reference, {17, 33, 20}, {.transpose_a = true, .transpose_b = true},
                GradMode::accumulate, 3);
}

// Half-precision leading dimensions and addresses with and without alignment for vector loads.
TYPED_TEST(CudaMatmul, AgreesInEveryTransposition) {
  for (const Sizes s : kSizes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate})
          this->compare(kernels::matmul, s, {.transpose_a = ta, .transpose_b = tb}, mode);
}

// If K is split among blocks, their sums must be added before rounding.
TYPED_TEST(CudaMatmul, RoundsLongSumOnce) {
  this->compare(kernels::matmul, {8, 16, 4096}, {.transpose_b = true}, GradMode::overwrite);
  this->compare(kernels::matmul, {8, 16, 4096}, {.transpose_a = true}, GradMode::accumulate);
}

TYPED_TEST(CudaMatmul, DoesNothingForAnUnwantedResult) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<TypeParam> a(gpu, Array<TypeParam>({2, 2}));
  kernels::matmul(cuda_stream_of(gpu), a.view(), a.view(), GradView());
  gpu.synchronize();
}

template <class T>
class CudaLinear : public testing::GpuTest {};
TYPED_TEST_SUITE(CudaLinear, MatmulTypes);

// The descriptors of a layer are cached, but each call sets its own bias.
TYPED_TEST(CudaLinear, EachCallReadsItsBias) {
  using T = TypeParam;
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<T> x(gpu, Array<T>({8, 8})), weight(gpu, Array<T>({8, 8}));
  const DeviceArray<T> ones(gpu, Array<T>({8}, static_cast<T>(1))),
      twos(gpu, Array<T>({8}, static_cast<T>(2)));
  for (const auto& [bias, value] : {std::pair{&ones, 1}, {&twos, 2}, {&ones, 1}}) {
    const DeviceArray<T> y(gpu, {8, 8});
    kernels::linear_forward(cuda_stream_of(gpu), x.view(), weight.view(), bias->view(), y.view(), false);
    testing::expect_same_bits(y.values(), Array<T>({8, 8}, static_cast<T>(value)));
  }
}

/// Calls cuBLASLt only, without the fallback to the reference kernel.
template <class T>
class CublasGemm : public CudaMatmul<T> {
 protected:
  /// Returns whether `library` computes [m, k] times [n, k]^T. If it does, checks the result.
  bool multiplies(kernels::cuda::CublasLt& library, Sizes s, bool with_bias = false, bool relu = false) {
    SCOPED_TRACE(::testing::Message() << s.m << "x" << s.k << " times " << s.k << "x" << s.n << ", bias "
                                      << with_bias << ", relu " << relu);
    const auto a = Array<T>::random({s.m, s.k}, 1);
    const auto b = Array<T>::random({s.n, s.k}, 2);
    const auto bias = Array<T>::random({s.n}, 3);
    const auto exact_a = a.template to<double>(), exact_b = b.template to<double>(),
               exact_bias = bias.template to<double>();
    CpuStream cpu({.threads = 1});
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    Array<double> expected({s.m, s.n});
    kernels::linear_forward(cpu, exact_a.view(), exact_b.view(), with_bias ? exact_bias.view() : ConstView(),
                            expected.view(), relu);
    const DeviceArray<T> gpu_a(gpu, a), gpu_b(gpu, b), gpu_bias(gpu, bias), c(gpu, {s.m, s.n});
    const kernels::cuda::GemmProblem problem{
        .dtype = dtype_of<T>,
        .m = s.m,
        .n = s.n,
        .k = s.k,
        .transpose_b = true,
        .relu = relu,
        .a_alignment = kernels::cuda::alignment_of(gpu_a.view().data),
        .b_alignment = kernels::cuda::alignment_of(gpu_b.view().data),
        .c_alignment = kernels::cuda::alignment_of(c.view().data),
        .bias_alignment = with_bias ? kernels::cuda::alignment_of(gpu_bias.view().data) : 0};
    const kernels::cuda::Operands operands{.a = gpu_a.view().data,
                                           .b = gpu_b.view().data,
                                           .bias = with_bias ? gpu_bias.view().data : nullptr,
                                           .c = c.view().data};
    if (!library.multiply(cuda_stream_of(gpu), problem, operands, {.c = operands.c})) return false;
    testing::expect_rounded_near(c.values(), expected, dot_tolerance<T>(s.k));
    return true;
  }
};
TYPED_TEST_SUITE(CublasGemm, MatmulTypes);

TYPED_TEST(CublasGemm, ExistsForCommonSizes) {
  kernels::cuda::CublasLt library(cuda_stream_of(DeviceContext::create_cuda(0)));
  for (const Sizes s : {Sizes{64, 64, 64}, {128, 10, 64}, {32, 24, 400}, {17, 33, 20}, {1, 1, 1}})
    EXPECT_TRUE(this->multiplies(library, s));
}

// cuBLASLt documents bias and ReLU for these types, but not for f64.
TYPED_TEST(CublasGemm, FusesBiasAndRelu) {
  if (dtype_of<TypeParam> == DType::f64) return;
  kernels::cuda::CublasLt library(cuda_stream_of(DeviceContext::create_cuda(0)));
  for (const bool bias : {false, true})
    for (const bool relu : {false, true}) {
      EXPECT_TRUE(this->multiplies(library, {64, 64, 64}, bias, relu));
      EXPECT_TRUE(this->multiplies(library, {32, 40, 128}, bias, relu));
    }
}

TYPED_TEST(CublasGemm, ExistsWithoutWorkspace) {
  kernels::cuda::CublasLt library(cuda_stream_of(DeviceContext::create_cuda(0)), 0);
  EXPECT_TRUE(this->multiplies(library, {8, 16, 4096}));
  EXPECT_TRUE(this->multiplies(library, {3, 5, 2049}));
}

TYPED_TEST(CublasGemm, CachesMostRecentlyUsedProblems) {
  kernels::cuda::CublasLt library(cuda_stream_of(DeviceContext::create_cuda(0)));
  const auto shapes = static_cast<std::int64_t>(kernels::cuda::CublasLt::kCapacity) + 3;
  for (std::int64_t m = 1; m <= shapes; ++m) {
    EXPECT_TRUE(this->multiplies(library, {m, 4, 8}));
    EXPECT_TRUE(this->multiplies(library, {1, 4, 8}));  // used recently, so it stays in the cache
  }
  EXPECT_EQ(library.size(), kernels::cuda::CublasLt::kCapacity);
  EXPECT_TRUE(this->multiplies(library, {2, 4, 8}));  // evicted, so it is created again
}

class CudaTf32 : public testing::GpuTest {
 protected:
  /// Returns the largest error of a GEMM, relative to the sizes of its terms.
  static double error_with(bool tf32) {
    constexpr std::int64_t kSize = 128;
    const auto a = Array<float>::random({kSize, kSize}, 1);
    const auto b = Array<float>::random({kSize, kSize}, 2);
    Array<double> expected({kSize, kSize});
    CpuStream cpu({.threads = 1});
    kernels::matmul(cpu, a.to<double>().view(), b.to<double>().view(), expected.grad());

    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<float> gpu_a(gpu, a), gpu_b(gpu, b), c(gpu, {kSize, kSize});
    gpu.synchronize();  // the following work runs on another stream
    CudaStream stream(0, gpu.memory(), {.cuda = {.tf32 = tf32}});
    kernels::matmul(stream, gpu_a.view(), gpu_b.view(), c.grad());
    stream.synchronize();
    const Array<float> found = c.values();
    double largest = 0;
    for (std::size_t e = 0; e < found.size(); ++e)
      largest = std::max(largest, std::abs(found[e] - expected[e]));
    return largest;
  }
};

// f32 is accurate to the last bits unless TF32 is allowed. TF32 operands have 10 bits and an error of up to
// 2^-11. Their products, of mean size at most 1/3, have twice that error, and a sum of 128 of them sqrt(128)
// times as much: at most about 0.004. With this many elements, the largest error is at least a hundredth of
// it.
TEST_F(CudaTf32, IsUsedOnlyOnRequest) {
  EXPECT_LT(error_with(false), dot_tolerance<float>(128));
  EXPECT_LT(error_with(true), 0.03);
  EXPECT_GT(error_with(true), 4 * dot_tolerance<float>(128));
}

}  // namespace
}  // namespace convoy

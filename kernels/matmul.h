// Matrix multiplication (GEMM) of row-major matrices. CPU: a library in f32 and f64; bf16 is converted to
// f32. CUDA: cuBLASLt in every floating-point type. f16 and bf16 accumulate in f32 and round once, or twice
// with GradMode::accumulate: kernels for Hopper round the product before they add it. f32 does not use TF32
// unless CudaOptions::tf32 is set.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

/// Options of a matrix multiplication.
struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

/// The sizes of a matrix multiplication: `batch` times [m, k] by [k, n].
struct GemmSizes {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool shares_a = false, shares_b = false;  // one matrix that is a factor of the whole batch

  GemmSizes(const Shape& a, const Shape& b, const Shape& c, MatmulOptions options)
      : batch(c.rank() == 3 ? c[0] : 1),
        m(c[-2]),
        n(c[-1]),
        k(a[options.transpose_a ? -2 : -1]),
        shares_a(a.rank() == 2),
        shares_b(b.rank() == 2) {}
  /// Returns the distance of consecutive matrices in elements: 0 for a shared one.
  std::int64_t stride_a() const { return shares_a ? 0 : m * k; }
  std::int64_t stride_b() const { return shares_b ? 0 : k * n; }
};

// Computes c [M, N] = op(a) op(b), or c += op(a) op(b) with GradMode::accumulate. a is [M, K], or [K, M] with
// transpose_a. b is [K, N], or [N, K] with transpose_b. K = 0 gives zeros.
// With c [B, M, N], computes B independent matrices. a and b have B matrices too, or rank 2: one matrix that
// is a factor of all of them.
void matmul(CpuStream&, ConstView a, ConstView b, GradView c, MatmulOptions options = {});
void matmul(CudaStream&, ConstView a, ConstView b, GradView c, MatmulOptions options = {});

// Computes d = alpha op(a) op(b) + beta c. c and d have the shape of the product, and d must not overlap an
// argument. The product is rounded before c is added to it, except where cuBLASLt adds in f32.
void matmul_add(CpuStream&, double alpha, ConstView a, ConstView b, double beta, ConstView c, View d,
                MatmulOptions options = {});
void matmul_add(CudaStream&, double alpha, ConstView a, ConstView b, double beta, ConstView c, View d,
                MatmulOptions options = {});

// Computes a linear layer: y [M, N] = x [M, K] weight [N, K]^T + bias [N], and its ReLU if `relu`. bias.data
// may be null. y must not overlap an input. NaN passes through the ReLU of the CPU and of the plain CUDA
// kernels. The fused ReLU of cuBLASLt maps NaN to 0.
void linear_forward(CpuStream&, ConstView x, ConstView weight, ConstView bias, View y, bool relu);
void linear_forward(CudaStream&, ConstView x, ConstView weight, ConstView bias, View y, bool relu);

// Computes matmul by a plain tiled kernel. It serves as an example, as the reference for the cuBLASLt
// results, and as the fallback for problems without a cuBLASLt algorithm. There is no CPU version; CPU tests
// use the definition.
void matmul_reference(CudaStream&, ConstView a, ConstView b, GradView c, MatmulOptions options = {});

}  // namespace convoy::kernels

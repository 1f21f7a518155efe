// kernels/matmul.h on the GPU: cuBLASLt, or the reference kernel if cuBLASLt has no algorithm.
#include "convoy/kernels/matmul.h"

#include "convoy/kernels/cuda/cublas/matmul.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"

namespace convoy::kernels {
namespace {

/// Enqueues the GEMM by cuBLASLt: c = act(sum.alpha op(a) op(b) + sum.beta sum.c + bias). Returns false and does
/// nothing if cuBLASLt has no algorithm. c must not be empty.
bool multiply_by_library(CudaStream& stream, ConstView a, ConstView b, View c, const cuda::WeightedSum& sum,
                         MatmulOptions options, const void* bias = nullptr, bool relu = false) {
  const GemmSizes sizes(a.shape, b.shape, c.shape, options);
  if (sizes.k == 0) return false;  // cuBLASLt does not support empty matrices
  const cuda::GemmProblem problem{.dtype = c.dtype,
                                  .tf32 = stream.cuda_options().tf32,
                                  .batch = sizes.batch,
                                  .shares_a = sizes.shares_a,
                                  .shares_b = sizes.shares_b,
                                  .m = sizes.m,
                                  .n = sizes.n,
                                  .k = sizes.k,
                                  .transpose_a = options.transpose_a,
                                  .transpose_b = options.transpose_b,
                                  .relu = relu,
                                  .a_alignment = cuda::alignment_of(a.data),
                                  .b_alignment = cuda::alignment_of(b.data),
                                  .c_alignment = cuda::alignment_of(c.data),
                                  .bias_alignment = bias != nullptr ? cuda::alignment_of(bias) : 0};
  return stream.local<cuda::CublasLt>().multiply(stream, problem,
                                                 {.a = a.data, .b = b.data, .bias = bias, .c = c.data}, sum);
}

}  // namespace

void matmul(CudaStream& stream, ConstView a, ConstView b, GradView c, MatmulOptions options) {
  if (!c.wanted() || c.numel() == 0) return;
  const cuda::WeightedSum sum{.beta = c.mode == GradMode::accumulate ? 1.0 : 0.0, .c = c.data};
  if (!multiply_by_library(stream, a, b, View{c.data, c.shape, c.dtype}, sum, options))
    matmul_reference(stream, a, b, c, options);
}

void matmul_add(CudaStream& stream, double alpha, ConstView a, ConstView b, double beta, ConstView c, View d,
                MatmulOptions options) {
  if (d.numel() == 0) return;
  const bool is_alike =
      cuda::alignment_of(c.data) >= cuda::alignment_of(d.data);  // plans have one alignment for both
  if (is_alike && multiply_by_library(stream, a, b, d, {.alpha = alpha, .beta = beta, .c = c.data}, options))
    return;
  matmul(stream, a, b, GradView(d), options);
  add(stream, c, d, d, beta, alpha);
}

void linear_forward(CudaStream& stream, ConstView x, ConstView weight, ConstView bias, View y, bool relu) {
  if (y.numel() == 0) return;
  const MatmulOptions options{.transpose_b = true};
  if (multiply_by_library(stream, x, weight, y, {.c = y.data}, options, bias.data, relu)) return;
  matmul(stream, x, weight, GradView(y), options);
  if (bias.data != nullptr) {
    add_bias(stream, y, bias, y, relu);
  } else if (relu) {
    unary_forward(stream, UnaryOp::relu, y, y);
  }
}

}  // namespace convoy::kernels

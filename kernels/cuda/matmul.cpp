// kernels/matmul.h on the GPU: cuBLASLt, and plain kernels for what it has no algorithm for.
#include "kernels/matmul.h"

#include "kernels/cuda/cublas_matmul.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace convoy {
namespace {

struct Epilogue {
  const void* bias = nullptr;
  bool relu = false;
};

/// False, and nothing done, where the library has no algorithm. No output is empty.
bool multiply_by_library(CudaStream& stream, ConstView a, ConstView b, GradView c, MatmulOptions options,
                         const Epilogue& epilogue = {}) {
  const std::int64_t terms = a.shape[options.transpose_a ? 0 : 1];
  if (terms == 0) return false;  // the library's matrices have rows and columns
  const cuda::Product product{
      .dtype = c.dtype,
      .tf32 = stream.cuda_options().tf32,
      .m = c.shape[0],
      .n = c.shape[1],
      .k = terms,
      .transpose_a = options.transpose_a,
      .transpose_b = options.transpose_b,
      .relu = epilogue.relu,
      .a_alignment = cuda::alignment_of(a.data),
      .b_alignment = cuda::alignment_of(b.data),
      .c_alignment = cuda::alignment_of(c.data),
      .bias_alignment = epilogue.bias != nullptr ? cuda::alignment_of(epilogue.bias) : 0};
  return stream.local<cuda::CublasLt>().multiply(
      stream, product, {.a = a.data, .b = b.data, .bias = epilogue.bias, .c = c.data}, c.mode);
}

}  // namespace

void matmul(CudaStream& stream, ConstView a, ConstView b, GradView c, MatmulOptions options) {
  if (!c.wanted() || c.numel() == 0) return;
  if (!multiply_by_library(stream, a, b, c, options)) matmul_reference(stream, a, b, c, options);
}

void linear_forward(CudaStream& stream, ConstView x, ConstView weight, ConstView bias, View y, bool relu) {
  if (y.numel() == 0) return;
  const MatmulOptions options{.transpose_b = true};
  const Epilogue epilogue{.bias = bias.data, .relu = relu};
  if (multiply_by_library(stream, x, weight, GradView(y), options, epilogue)) return;
  matmul(stream, x, weight, GradView(y), options);
  if (bias.data != nullptr) {
    add_bias(stream, y, bias, y, relu);
  } else if (relu) {
    relu_forward(stream, y, y);
  }
}

}  // namespace convoy

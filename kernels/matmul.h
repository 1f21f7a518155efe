// Matrix products, row-major. CPU: OpenBLAS, in f32 and f64, bf16 on copies in f32. CUDA: cuBLASLt, in every
// floating-point type. Half types sum in f32 and round once, and f32 stays f32 unless CudaOptions::tf32 says
// otherwise.
#pragma once

#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// c [M, N] = op(a) op(b), or c += with Mode::add. a is [M, K] ([K, M] transposed), b is [K, N] ([N, K]
// transposed). K = 0 gives zeros.
void matmul(CpuStream&, ConstView a, ConstView b, GradView c, MatmulOptions options = {});
void matmul(CudaStream&, ConstView a, ConstView b, GradView c, MatmulOptions options = {});

// A linear layer: y [M, N] = x [M, K] weight [N, K]^T + bias [N], behind which `relu` takes max(., 0).
// bias.data may be null; y overlaps no input. A NaN passes through the ReLU on the CPU and where plain
// kernels compute, and becomes 0 in cuBLASLt's.
void linear_forward(CpuStream&, ConstView x, ConstView weight, ConstView bias, View y, bool relu);
void linear_forward(CudaStream&, ConstView x, ConstView weight, ConstView bias, View y, bool relu);

// The product in plain tiles, to read, to hold the library's against, and for what the library has no
// algorithm for. (The CPU's reference is the definition.)
void matmul_reference(CudaStream&, ConstView a, ConstView b, GradView c, MatmulOptions options = {});

}  // namespace convoy

// Matrix products, row-major. CPU: OpenBLAS; CUDA: cuBLASLt. f32 and f64.
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

}  // namespace convoy

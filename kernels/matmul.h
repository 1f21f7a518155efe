// Matrix products, row-major. CPU: OpenBLAS, in f32 and f64. CUDA: the plain product below, in every
// floating-point type; half types sum in f32 and round once.
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

// The same in plain tiles, to read and to hold faster products against. (The CPU's reference is the
// definition.)
void matmul_reference(CudaStream&, ConstView a, ConstView b, GradView c, MatmulOptions options = {});

}  // namespace convoy

// Options for the computations on a GPU: a value, which DeviceContext::create_cuda() copies.
#pragma once

namespace convoy {

/// Constraints on the algorithms that cuBLAS and cuDNN may use.
struct CudaOptions {
  /// GEMMs and convolutions of f32 may use TF32, which rounds the factors to 10 bits of mantissa.
  bool tf32 = false;
  /// Every run gives the same bytes: no autotuning, and no algorithms that the library marks as
  /// nondeterministic.
  bool deterministic = false;
};

}  // namespace convoy

// Options for the computations on a GPU: a value, which DeviceContext::create_cuda() copies.
#pragma once

#include <cstdint>

namespace convoy {

/// Whose kernels compute convolutions.
enum class Convolutions : std::uint8_t {
  cudnn,
  own,  // this project's, of kernels/cuda/convolution, where they support the problem; else cuDNN's
};

/// Constraints on the algorithms that cuBLAS and cuDNN may use.
struct CudaOptions {
  /// GEMMs and convolutions of f32 may use TF32, which rounds the factors to 10 bits of mantissa.
  bool tf32 = false;
  /// Every run gives the same bytes: no autotuning, and no algorithms that the library marks as
  /// nondeterministic.
  bool deterministic = false;
  /// With `own`, the GPU must run code for sm_90a.
  Convolutions convolutions = Convolutions::cudnn;
};

}  // namespace convoy

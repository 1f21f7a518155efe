// Options for the computations on a GPU: a value, which DeviceContext::create_cuda() copies.
#pragma once

#include <cstdint>

namespace convoy {

/// A choice among the algorithms for convolutions.
enum class Convolutions : std::uint8_t {
  fastest,       // what is fastest of cuDNN's and this project's kernels (kernels/cuda/implicit_gemm)
  cudnn,         // cuDNN's, except where it has none that runs
  implicit_gemm  // this project's, except where they do not support the problem
};

/// Constraints on the algorithms that cuBLAS and cuDNN may use.
struct CudaOptions {
  /// GEMMs and convolutions of f32 may use TF32, which rounds the factors to 10 bits of mantissa.
  bool tf32 = false;
  /// Every run gives the same bytes: no autotuning, and no algorithms that the library marks as
  /// nondeterministic.
  bool deterministic = false;
  /// Which algorithms compute convolutions.
  Convolutions convolutions = Convolutions::fastest;
};

}  // namespace convoy

// What a user decides of a GPU's computations.
#pragma once

namespace convoy {

/// How much freedom the libraries have that compute on a GPU.
struct CudaOptions {
  bool tf32 = false;           // products and convolutions of f32 may round factors to 10 bits of mantissa
  bool deterministic = false;  // the same bytes on every run: nothing is timed, and no algorithm is taken
                               // that is noted as not repeating itself
};

}  // namespace convoy

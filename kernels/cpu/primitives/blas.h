// GEMM of row-major matrices by OpenBLAS, with one overload per type.
#pragma once

#include <cblas.h>

#include <cstdint>
#include <limits>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/cpu/primitives/library_threads.h"

namespace convoy::kernels::blas {

/// Returns `size` as BLAS's integer type, which has 32 bits in common builds of OpenBLAS. Throws UsageError
/// if the size does not fit, since it would silently wrap.
inline blasint size(std::int64_t size) {
  check(size <= std::numeric_limits<blasint>::max(),
        "matmul: found a size of {}, this BLAS supports at most {}", size,
        std::numeric_limits<blasint>::max());
  return static_cast<blasint>(size);
}

inline CBLAS_TRANSPOSE transpose(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

/// Computes c [m, n] = alpha op(a) op(b) + beta c. lda, ldb and ldc are the distances of consecutive rows.
/// Uses the calling thread alone.
inline void gemm(bool transpose_a, bool transpose_b, blasint m, blasint n, blasint k, float alpha,
                 const float* a, blasint lda, const float* b, blasint ldb, float beta, float* c,
                 blasint ldc) {
  set_library_threads(1);
  cblas_sgemm(CblasRowMajor, transpose(transpose_a), transpose(transpose_b), m, n, k, alpha, a, lda, b, ldb,
              beta, c, ldc);
}
inline void gemm(bool transpose_a, bool transpose_b, blasint m, blasint n, blasint k, double alpha,
                 const double* a, blasint lda, const double* b, blasint ldb, double beta, double* c,
                 blasint ldc) {
  set_library_threads(1);
  cblas_dgemm(CblasRowMajor, transpose(transpose_a), transpose(transpose_b), m, n, k, alpha, a, lda, b, ldb,
              beta, c, ldc);
}

}  // namespace convoy::kernels::blas

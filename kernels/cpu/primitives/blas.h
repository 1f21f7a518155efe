// GEMM of row-major matrices, with one overload per type: f32 by oneDNN on x86-64, and all else by OpenBLAS.
#pragma once

#include <cblas.h>
#include <dnnl.h>

#include <cstdint>
#include <limits>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/cpu/primitives/library_threads.h"
#include "convoy/kernels/cpu/primitives/signal_block.h"
#include "convoy/kernels/runtime/stream.h"

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

/// Returns whether oneDNN multiplies f32 matrices. It generates code for the processor that it finds, if that
/// is an x86-64 with AVX2. OpenBLAS has code for the processors that its release knows, and uses SSE3 on
/// newer ones.
inline bool onednn_multiplies() {
  static const bool generates = (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2;
  return generates;
}

/// Computes c [m, n] = alpha op(a) op(b) + beta c. lda, ldb and ldc are the strides of rows.
/// Uses the calling thread alone. If oneDNN has no code for a multiplication, OpenBLAS computes it, with one
/// warning per stream.
inline void gemm(CpuStream& stream, bool transpose_a, bool transpose_b, blasint m, blasint n, blasint k,
                 float alpha, const float* a, blasint lda, const float* b, blasint ldb, float beta, float* c,
                 blasint ldc) {
  set_library_threads(1);
  if (onednn_multiplies()) {
    const SignalBlock block;
    const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha,
                                            a, lda, b, ldb, beta, c, ldc);
    if (status == dnnl_success) return;
    const std::string problem = fmt::format("matmul of f32 [{}, {}] by [{}, {}] failed in oneDNN (status {})",
                                            m, k, k, n, static_cast<int>(status));
    if (status != dnnl_unimplemented && status != dnnl_runtime_error) throw DeviceError(problem);
    stream.warn_once("sgemm", problem + "; OpenBLAS replaces it, which may be slower");
  }
  cblas_sgemm(CblasRowMajor, transpose(transpose_a), transpose(transpose_b), m, n, k, alpha, a, lda, b, ldb,
              beta, c, ldc);
}
inline void gemm(CpuStream&, bool transpose_a, bool transpose_b, blasint m, blasint n, blasint k,
                 double alpha, const double* a, blasint lda, const double* b, blasint ldb, double beta,
                 double* c, blasint ldc) {
  set_library_threads(1);
  cblas_dgemm(CblasRowMajor, transpose(transpose_a), transpose(transpose_b), m, n, k, alpha, a, lda, b, ldb,
              beta, c, ldc);
}

}  // namespace convoy::kernels::blas

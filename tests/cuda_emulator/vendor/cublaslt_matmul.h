// GEMMs as cuBLASLt's descriptors describe them, and the algorithms of the emulated library, which vendor.h
// lists.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/cuda_emulator/vendor/vendor_elements.h"
#include "tests/cuda_emulator/vendor/vendor_state.h"

struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::int32_t bias_type = -1;  // -1: the output's
};

struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type = CUDA_R_32F;
  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0;
  std::int32_t batch = 1;         // matrices
  std::int64_t batch_offset = 0;  // elements between the matrices of the batch

  bool operator==(const cublasLtMatrixLayoutOpaque_t&) const = default;
  convoy::emulator::Element element() const;
  /// Returns the number of bytes from the first element to the last.
  std::size_t bytes() const;
};

struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
};

namespace convoy::emulator {

using CublasRefusal = Refusal<cublasStatus_t>;

/// A GEMM: D = op(A) op(B), where op(A) is m x k and op(B) is k x n; or a batch of them.
struct Gemm {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, c, d;
  std::uint64_t m = 0, n = 0, k = 0;

  bool has_bias() const { return (operation.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  bool has_relu() const { return (operation.epilogue & CUBLASLT_EPILOGUE_RELU) != 0; }
};

/// Creates a GEMM. Throws a CublasRefusal for inconsistent arguments or unsupported types.
Gemm make_gemm(const cublasLtMatmulDescOpaque_t& operation, const cublasLtMatrixLayoutOpaque_t& a,
               const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c,
               const cublasLtMatrixLayoutOpaque_t& d);

/// An algorithm and its workspace size.
struct Algorithm {
  std::uint64_t number = 0;
  std::size_t workspace_bytes = 0;
};
/// Returns the algorithms that can compute the GEMM within `limits`, the fastest first.
std::vector<Algorithm> algorithms(const Gemm& gemm, const cublasLtMatmulPreferenceOpaque_t& limits);

/// The addresses of the matrices.
struct Matrices {
  const void *a, *b, *c;
  void* d;
};

/// Computes the GEMM. Called when the stream reaches it. alpha and beta have the scale type.
void run(const Gemm& gemm, std::uint64_t algorithm, double alpha, double beta, const Matrices& matrices,
         void* workspace);

}  // namespace convoy::emulator

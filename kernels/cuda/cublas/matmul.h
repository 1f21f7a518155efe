// GEMM by cuBLASLt for row-major matrices. Private to kernels/cuda. README.md in this directory explains the
// layouts.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/base/lru_cache.h"
#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/cuda/stream.h"

namespace convoy::kernels::cuda {

/// The GEMM c [m, n] = act(op(a) [m, k] op(b) [k, n] + bias [n]) with row-major matrices, or a batch of them:
/// everything that the choice of an algorithm depends on. No size may be 0.
struct GemmProblem {
  DType dtype = DType::f32;
  bool tf32 = false;                        // f32 operands may be rounded to TF32
  std::int64_t batch = 1;                   // consecutive matrices; more than 1 excludes bias and ReLU
  bool shares_a = false, shares_b = false;  // one matrix that is a factor of the whole batch
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool relu = false;
  /// Alignments of the addresses in bytes, powers of two. bias_alignment is 0 if there is no bias.
  std::uint32_t a_alignment = 0, b_alignment = 0, c_alignment = 0, bias_alignment = 0;

  friend auto operator<=>(const GemmProblem&, const GemmProblem&) = default;
};

/// Returns the largest power of two, at most 256, that divides `address`. 256 is cuBLASLt's default, and no
/// kernel requires more.
std::uint32_t alignment_of(const void* address);

/// The arrays of one GEMM. bias is null if there is no bias.
struct Operands {
  const void* a;
  const void* b;
  const void* bias;
  void* c;
};

/// What a GEMM computes from the product: alpha product + beta c. c has the layout and the alignment of the
/// result, and may be the result. It is not read if beta is 0.
struct WeightedSum {
  double alpha = 1, beta = 0;
  const void* c = nullptr;
};

/// cuBLASLt's descriptors of a GemmProblem. They are in host memory and need no GPU.
///
/// cuBLASLt's matrices are column-major. A row-major array [rows, columns] has the same bytes as the
/// column-major matrix columns x rows, its transpose. So cuBLASLt computes c^T = op(b)^T op(a)^T: b is the
/// first operand, the sizes are swapped, and the transposition flags stay the same. c^T has n rows, and
/// cuBLASLt's bias has one value per row, which is one value per column of c.
class GemmDescriptors {
 public:
  explicit GemmDescriptors(const GemmProblem& problem);

  /// Sets the address of the bias. The heuristics depend on its alignment, and the GEMM reads from it.
  void set_bias(const void* bias);

  cublasLtMatmulDesc_t operation() const { return operation_.get(); }
  cublasLtMatrixLayout_t a() const { return a_.get(); }
  cublasLtMatrixLayout_t b() const { return b_.get(); }
  cublasLtMatrixLayout_t c() const { return c_.get(); }

 private:
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  /// Returns the layout of a row-major matrix, or of `batch` consecutive ones or the same one `batch` times.
  static Layout layout(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t batch, bool shared);

  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation_;
  Layout a_, b_, c_;
};

/// Returns the constraints for the heuristics: the workspace limit in bytes, the alignments, and reductions
/// in the compute type.
Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference_for(
    const GemmProblem& problem, std::size_t workspace_limit);

/// A cuBLASLt handle for one stream, with a cache of the most recently used problems. It is created on first
/// use (CudaStream::local). Create it before the stream captures a CUDA graph, since cuBLASLt initializes
/// itself on the GPU.
class CublasLt {
 public:
  /// Maximum workspace of a GEMM in bytes: 32 MiB, NVIDIA's recommendation for Hopper. Algorithms for older
  /// GPUs need less. Only the workspace that the algorithm needs is allocated.
  static constexpr std::size_t kWorkspaceLimit = std::size_t{32} << 20;
  /// Number of problems kept. One training step of the largest network in this repository has fewer GEMM
  /// shapes.
  static constexpr std::size_t kCapacity = 64;

  explicit CublasLt(CudaStream& stream, std::size_t workspace_limit = kWorkspaceLimit);

  /// Enqueues the GEMM of the problem and the operands, with this sum. Returns false and does nothing if
  /// cuBLASLt has no algorithm for it. `stream` must be the constructor's stream.
  ///
  /// Always uses the first algorithm that the heuristics return, which depends only on the problem, the GPU
  /// and the version of cuBLASLt. Each algorithm adds in a fixed order. So results are reproducible bit for
  /// bit.
  bool multiply(CudaStream& stream, const GemmProblem& problem, const Operands& operands,
                const WeightedSum& sum);

  /// Returns the number of problems in the cache.
  std::size_t size() const { return plans_.size(); }

 private:
  struct Algorithm {
    cublasLtMatmulAlgo_t algo;
    std::size_t workspace_bytes;
  };
  struct Plan {
    GemmDescriptors descriptors;
    std::optional<Algorithm> algorithm;  // nullopt: cuBLASLt has none
  };
  /// Returns the cached plan or a new one, with the address of the bias set.
  const Plan& plan_for(const GemmProblem& problem, const void* bias);
  std::optional<Algorithm> first_algorithm(const GemmProblem& problem,
                                           const GemmDescriptors& descriptors) const;

  std::size_t workspace_limit_;
  Owned<cublasLtHandle_t, cublasLtDestroy> handle_;
  LruCache<GemmProblem, Plan> plans_{kCapacity};
};

}  // namespace convoy::kernels::cuda

namespace convoy::kernels {

/// Throws DeviceError if `status` is an error. CUBLAS_CHECK calls it.
inline void cublas_check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(std::string(call) + " failed: " + cublasLtGetStatusString(status) + " (" + file + ":" +
                    std::to_string(line) + ")");
}

}  // namespace convoy::kernels

/// A macro, because the message contains the text of the expression.
#define CUBLAS_CHECK(call) ::convoy::kernels::cublas_check((call), #call, __FILE_NAME__, __LINE__)

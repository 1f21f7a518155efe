// GEMM by cuBLASLt: descriptors, preferences, and the cache of algorithms.
#include "convoy/kernels/cuda/cublas/matmul.h"

#include <cublasLt.h>

#include <bit>
#include <utility>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/runtime/library_versions.h"

namespace convoy::kernels::cuda {
namespace {

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDA_R_64F;
    case DType::f32: return CUDA_R_32F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default:
      fail<UsageError>("matmul: found element type {}, expected f32, f64, f16 or bf16", to_string(dtype));
  }
}

/// Returns the type of the sums, alpha and beta.
cudaDataType_t scale_type(DType dtype) { return dtype == DType::f64 ? CUDA_R_64F : CUDA_R_32F; }

cublasComputeType_t compute_type(const GemmProblem& problem) {
  if (problem.dtype == DType::f64) return CUBLAS_COMPUTE_64F;
  const bool tf32 = problem.dtype == DType::f32 && problem.tf32;
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t epilogue(const GemmProblem& problem) {
  if (problem.bias_alignment == 0) return problem.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
  return problem.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
}

/// A value of alpha or beta in either scale type.
struct Factor {
  double f64;
  float f32;
  explicit Factor(double value) : f64(value), f32(static_cast<float>(value)) {}
  const void* as(DType dtype) const {
    return dtype == DType::f64 ? static_cast<const void*>(&f64) : static_cast<const void*>(&f32);
  }
};

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
}

template <class T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value));
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

}  // namespace

std::uint32_t alignment_of(const void* address) {
  constexpr std::uint32_t kMax = 256;
  return 1u << std::countr_zero(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address)) | kMax);
}

GemmDescriptors::Layout GemmDescriptors::layout(DType dtype, std::int64_t rows, std::int64_t columns,
                                                std::int64_t batch, bool shared) {
  cublasLtMatrixLayout_t out = nullptr;
  CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&out, data_type(dtype), static_cast<std::uint64_t>(columns),
                                          static_cast<std::uint64_t>(rows), columns));
  Layout created(out);
  if (batch > 1) {
    set(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
    set(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, shared ? std::int64_t{0} : rows * columns);
  }
  return created;
}

GemmDescriptors::GemmDescriptors(const GemmProblem& problem)
    : a_(layout(problem.dtype, problem.transpose_a ? problem.k : problem.m,
                problem.transpose_a ? problem.m : problem.k, problem.batch, problem.shares_a)),
      b_(layout(problem.dtype, problem.transpose_b ? problem.n : problem.k,
                problem.transpose_b ? problem.k : problem.n, problem.batch, problem.shares_b)),
      c_(layout(problem.dtype, problem.m, problem.n, problem.batch, false)) {
  cublasLtMatmulDesc_t operation = nullptr;
  CUBLAS_CHECK(cublasLtMatmulDescCreate(&operation, compute_type(problem), scale_type(problem.dtype)));
  operation_.reset(operation);
  // TRANSA describes cuBLASLt's first operand, which is b.
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, problem.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, problem.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(problem));
  if (problem.bias_alignment != 0)
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(problem.dtype));
}

void GemmDescriptors::set_bias(const void* bias) {
  set(operation(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
}

Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference_for(
    const GemmProblem& problem, std::size_t workspace_limit) {
  cublasLtMatmulPreference_t handle = nullptr;
  CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&handle));
  Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(handle);
  set(handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_limit});
  // If K is split among blocks, their sums are added in f32 (f64): half-precision results are rounded once,
  // at the end.
  set(handle, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.b_alignment);
  set(handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.a_alignment);
  set(handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.c_alignment);
  set(handle, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.c_alignment);
  return preference;
}

CublasLt::CublasLt(CudaStream& stream, std::size_t workspace_limit) : workspace_limit_(workspace_limit) {
  stream.make_current();  // a handle belongs to the GPU that is current when it is created
  cublasLtHandle_t handle = nullptr;
  CUBLAS_CHECK(cublasLtCreate(&handle));
  handle_.reset(handle);
}

std::optional<CublasLt::Algorithm> CublasLt::first_algorithm(const GemmProblem& problem,
                                                             const GemmDescriptors& descriptors) const {
  const auto preference = preference_for(problem, workspace_limit_);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), descriptors.operation(), descriptors.b(), descriptors.a(),
                                     descriptors.c(), descriptors.c(), preference.get(), 1, &result, &found);
  // cuBLASLt returns either status if it has no kernel, although its documentation does not list them for
  // this call.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  cublas_check(status, "cublasLtMatmulAlgoGetHeuristic", __FILE_NAME__, __LINE__);
  if (found == 0 || result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_limit_)
    return {};
  return Algorithm{.algo = result.algo, .workspace_bytes = result.workspaceSize};
}

const CublasLt::Plan& CublasLt::plan_for(const GemmProblem& problem, const void* bias) {
  if (Plan* const kept = plans_.find(problem)) {
    if (bias != nullptr) kept->descriptors.set_bias(bias);
    return *kept;
  }
  Plan plan{.descriptors = GemmDescriptors(problem), .algorithm = {}};
  if (bias != nullptr) plan.descriptors.set_bias(bias);
  plan.algorithm = first_algorithm(problem, plan.descriptors);
  return plans_.insert(problem, std::move(plan));
}

bool CublasLt::multiply(CudaStream& stream, const GemmProblem& problem, const Operands& operands,
                        const WeightedSum& sum) {
  stream.make_current();
  const Plan& plan = plan_for(problem, operands.bias);
  if (!plan.algorithm.has_value()) return false;
  const Scratch workspace(stream, plan.algorithm->workspace_bytes);
  const Factor alpha(sum.alpha), beta(sum.beta);
  const GemmDescriptors& described = plan.descriptors;
  CUBLAS_CHECK(cublasLtMatmul(handle_.get(), described.operation(), alpha.as(problem.dtype), operands.b,
                              described.b(), operands.a, described.a(), beta.as(problem.dtype), sum.c,
                              described.c(), operands.c, described.c(), &plan.algorithm->algo,
                              workspace.as<void>(), plan.algorithm->workspace_bytes, stream.handle()));
  return true;
}

}  // namespace convoy::kernels::cuda

namespace convoy {

std::string cublaslt_version_text() {
  const std::size_t version = cublasLtGetVersion();  // 10000 major + 100 minor + patch
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace convoy

#include "kernels/cuda/cublas_matmul.h"

#include <bit>
#include <utility>

#include "kernels/cuda/cublas_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/runtime/check.h"

namespace convoy::cuda {
namespace {

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDA_R_64F;
    case DType::f32: return CUDA_R_32F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default: fail<UsageError>("matmul: of {}, expected floating point", name_of(dtype));
  }
}

/// Of sums, alpha and beta.
cudaDataType_t scale_type(DType dtype) { return dtype == DType::f64 ? CUDA_R_64F : CUDA_R_32F; }

cublasComputeType_t compute_type(const Product& product) {
  if (product.dtype == DType::f64) return CUBLAS_COMPUTE_64F;
  const bool tf32 = product.dtype == DType::f32 && product.tf32;
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t epilogue(const Product& product) {
  if (product.bias_alignment == 0) return product.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
  return product.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
}

/// 1 and 0 in the scale type.
struct Factor {
  double f64;
  float f32;
  const void* as(DType dtype) const {
    return dtype == DType::f64 ? static_cast<const void*>(&f64) : static_cast<const void*>(&f32);
  }
};
constexpr Factor kOne{.f64 = 1, .f32 = 1};
constexpr Factor kZero{.f64 = 0, .f32 = 0};

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

}  // namespace

std::uint32_t alignment_of(const void* address) {
  constexpr std::uint32_t kMost = 256;
  return 1u << std::countr_zero(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address)) |
                                kMost);
}

ProductDescriptors::Layout ProductDescriptors::layout(DType dtype, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t out = nullptr;
  CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&out, data_type(dtype), static_cast<std::uint64_t>(columns),
                                          static_cast<std::uint64_t>(rows), columns));
  return Layout(out);
}

ProductDescriptors::ProductDescriptors(const Product& product)
    : a_(product.transpose_a ? layout(product.dtype, product.k, product.m)
                             : layout(product.dtype, product.m, product.k)),
      b_(product.transpose_b ? layout(product.dtype, product.n, product.k)
                             : layout(product.dtype, product.k, product.n)),
      c_(layout(product.dtype, product.m, product.n)) {
  cublasLtMatmulDesc_t operation = nullptr;
  CUBLAS_CHECK(cublasLtMatmulDescCreate(&operation, compute_type(product), scale_type(product.dtype)));
  operation_.reset(operation);
  // TRANSA is of the library's first operand, our second.
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, product.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(product));
  if (product.bias_alignment != 0)
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(product.dtype));
}

void ProductDescriptors::set_bias(const void* bias) {
  set(operation(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
}

Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference_for(
    const Product& product, std::size_t workspace_limit) {
  cublasLtMatmulPreference_t made = nullptr;
  CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&made));
  Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(made);
  set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_limit});
  // Where K is split among blocks, their sums meet in f32 (f64): a half is rounded once, at the end.
  set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product.b_alignment);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product.a_alignment);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, product.c_alignment);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, product.c_alignment);
  return preference;
}

CublasLt::CublasLt(CudaStream& stream, std::size_t workspace_limit) : workspace_limit_(workspace_limit) {
  stream.make_current();  // a handle is for the GPU on which it was made
  cublasLtHandle_t handle = nullptr;
  CUBLAS_CHECK(cublasLtCreate(&handle));
  handle_.reset(handle);
}

std::optional<CublasLt::Algorithm> CublasLt::first_algorithm(const Product& product,
                                                             const ProductDescriptors& descriptors) const {
  const auto preference = preference_for(product, workspace_limit_);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), descriptors.operation(), descriptors.b(), descriptors.a(),
                                     descriptors.c(), descriptors.c(), preference.get(), 1, &result, &found);
  // It says one or the other of what it has no kernel for, which its documentation does not list.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  cublas_check(status, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__);
  if (found == 0 || result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_limit_)
    return {};
  return Algorithm{.algo = result.algo, .workspace_bytes = result.workspaceSize};
}

const CublasLt::Plan& CublasLt::plan_for(const Product& product, const void* bias) {
  if (Plan* const kept = plans_.find(product)) {
    if (bias != nullptr) kept->descriptors.set_bias(bias);
    return *kept;
  }
  Plan plan{.descriptors = ProductDescriptors(product), .algorithm = {}};
  if (bias != nullptr) plan.descriptors.set_bias(bias);
  plan.algorithm = first_algorithm(product, plan.descriptors);
  return plans_.insert(product, std::move(plan));
}

bool CublasLt::multiply(CudaStream& stream, const Product& product, const Operands& operands, Mode mode) {
  stream.make_current();
  const Plan& plan = plan_for(product, operands.bias);
  if (!plan.algorithm.has_value()) return false;
  const Scratch workspace(stream, plan.algorithm->workspace_bytes);
  const Factor& beta = mode == Mode::add ? kOne : kZero;
  const ProductDescriptors& described = plan.descriptors;
  CUBLAS_CHECK(cublasLtMatmul(handle_.get(), described.operation(), kOne.as(product.dtype), operands.b,
                              described.b(), operands.a, described.a(), beta.as(product.dtype), operands.c,
                              described.c(), operands.c, described.c(), &plan.algorithm->algo,
                              workspace.as<void>(), plan.algorithm->workspace_bytes, stream.handle()));
  return true;
}

}  // namespace convoy::cuda

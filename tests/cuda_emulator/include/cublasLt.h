// The part of cuBLASLt that Convoy uses, implemented by the emulator. Names, values and meanings are those of
// the cuBLAS documentation. Matrices are column-major.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "tests/cuda_emulator/include/cublasLt_values.h"

#define CUBLAS_VERSION 130100

#define CONVOY_ENUMERATOR(name, value) name = value,
enum cublasStatus_t { CONVOY_CUBLAS_STATUSES(CONVOY_ENUMERATOR) };
enum cublasOperation_t { CONVOY_CUBLAS_OPERATIONS(CONVOY_ENUMERATOR) };
enum cublasComputeType_t { CONVOY_CUBLAS_COMPUTE_TYPES(CONVOY_ENUMERATOR) };
enum cudaDataType_t { CONVOY_CUDA_DATA_TYPES(CONVOY_ENUMERATOR) };
enum cublasLtMatmulDescAttributes_t { CONVOY_CUBLASLT_MATMUL_ATTRIBUTES(CONVOY_ENUMERATOR) };
enum cublasLtEpilogue_t { CONVOY_CUBLASLT_EPILOGUES(CONVOY_ENUMERATOR) };
enum cublasLtMatrixLayoutAttribute_t { CONVOY_CUBLASLT_LAYOUT_ATTRIBUTES(CONVOY_ENUMERATOR) };
enum cublasLtMatmulPreferenceAttributes_t { CONVOY_CUBLASLT_PREFERENCES(CONVOY_ENUMERATOR) };
enum cublasLtReductionScheme_t { CONVOY_CUBLASLT_REDUCTIONS(CONVOY_ENUMERATOR) };
#undef CONVOY_ENUMERATOR
using cudaDataType = cudaDataType_t;

struct cublasLtContext;
using cublasLtHandle_t = cublasLtContext*;
struct cublasLtMatmulDescOpaque_t;
using cublasLtMatmulDesc_t = cublasLtMatmulDescOpaque_t*;
struct cublasLtMatrixLayoutOpaque_t;
using cublasLtMatrixLayout_t = cublasLtMatrixLayoutOpaque_t*;
struct cublasLtMatmulPreferenceOpaque_t;
using cublasLtMatmulPreference_t = cublasLtMatmulPreferenceOpaque_t*;

/// An algorithm that the heuristics returned. Plain bytes, which may be copied and stored for the same
/// version of the library.
struct cublasLtMatmulAlgo_t {
  std::uint64_t data[8];
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

extern "C" {
std::size_t cublasLtGetVersion();
const char* cublasLtGetStatusString(cublasStatus_t status);
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);

/// Creates a matrix multiplication. `scale` is the type of alpha and beta.
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute,
                                        cudaDataType_t scale);
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes);

/// Creates a matrix layout. `ld` is the number of elements between consecutive columns.
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld);
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes);
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout);

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference);
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes);

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a_layout,
                                              cublasLtMatrixLayout_t b_layout,
                                              cublasLtMatrixLayout_t c_layout,
                                              cublasLtMatrixLayout_t d_layout,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned);

/// Computes D = epilogue(alpha op(A) op(B) + beta C). alpha and beta are in host memory.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream);
}

// Compile-time checks that the emulator's cudnn.h and cublasLt.h declare the same interfaces as the real
// headers. The build selects which headers are compiled.
#include <cublasLt.h>
#include <cudnn.h>

#include <type_traits>

#include "tests/cuda_emulator/include/cublasLt_values.h"
#include "tests/cuda_emulator/include/cudnn_values.h"

// Each name in the tables has the listed value and belongs to the enum of that table.
#define CONVOY_CHECK_VALUE(name, value) static_assert(static_cast<int>(name) == (value), #name);
CONVOY_CUDNN_STATUSES(CONVOY_CHECK_VALUE)
CONVOY_CUDNN_DATA_TYPES(CONVOY_CHECK_VALUE)
CONVOY_CUDNN_CONVOLUTION_MODES(CONVOY_CHECK_VALUE)
CONVOY_CUDNN_POINTWISE_MODES(CONVOY_CHECK_VALUE)
CONVOY_CUDNN_ATTRIBUTE_NAMES(CONVOY_CHECK_VALUE)
CONVOY_CUDNN_ATTRIBUTE_TYPES(CONVOY_CHECK_VALUE)
CONVOY_CUDNN_DESCRIPTOR_TYPES(CONVOY_CHECK_VALUE)
CONVOY_CUDNN_NUMERICAL_NOTES(CONVOY_CHECK_VALUE)
CONVOY_CUDNN_BEHAVIOR_NOTES(CONVOY_CHECK_VALUE)
CONVOY_CUDNN_KNOB_TYPES(CONVOY_CHECK_VALUE)
CONVOY_CUDNN_HEURISTIC_MODES(CONVOY_CHECK_VALUE)
CONVOY_CUBLAS_STATUSES(CONVOY_CHECK_VALUE)
CONVOY_CUBLAS_OPERATIONS(CONVOY_CHECK_VALUE)
CONVOY_CUBLAS_COMPUTE_TYPES(CONVOY_CHECK_VALUE)
CONVOY_CUDA_DATA_TYPES(CONVOY_CHECK_VALUE)
CONVOY_CUBLASLT_MATMUL_ATTRIBUTES(CONVOY_CHECK_VALUE)
CONVOY_CUBLASLT_EPILOGUES(CONVOY_CHECK_VALUE)
CONVOY_CUBLASLT_PREFERENCES(CONVOY_CHECK_VALUE)
CONVOY_CUBLASLT_REDUCTIONS(CONVOY_CHECK_VALUE)
CONVOY_CUBLASLT_LAYOUT_ATTRIBUTES(CONVOY_CHECK_VALUE)

namespace {

template <class F, class Expected>
constexpr bool kIs = std::is_same_v<F, Expected>;

using Size = std::size_t;
using Descriptor = cudnnBackendDescriptor_t;
using Name = cudnnBackendAttributeName_t;
using Type = cudnnBackendAttributeType_t;
static_assert(std::is_same_v<Descriptor, void*>);
static_assert(kIs<decltype(cudnnGetVersion), Size()>);
static_assert(kIs<decltype(cudnnGetErrorString), const char*(cudnnStatus_t)>);
static_assert(kIs<decltype(cudnnGetLastErrorString), void(char*, Size)>);
static_assert(kIs<decltype(cudnnCreate), cudnnStatus_t(cudnnHandle_t*)>);
static_assert(kIs<decltype(cudnnDestroy), cudnnStatus_t(cudnnHandle_t)>);
static_assert(kIs<decltype(cudnnSetStream), cudnnStatus_t(cudnnHandle_t, cudaStream_t)>);
static_assert(
    kIs<decltype(cudnnBackendCreateDescriptor), cudnnStatus_t(cudnnBackendDescriptorType_t, Descriptor*)>);
static_assert(kIs<decltype(cudnnBackendDestroyDescriptor), cudnnStatus_t(Descriptor)>);
static_assert(kIs<decltype(cudnnBackendFinalize), cudnnStatus_t(Descriptor)>);
static_assert(kIs<decltype(cudnnBackendSetAttribute),
                  cudnnStatus_t(Descriptor, Name, Type, std::int64_t, const void*)>);
static_assert(kIs<decltype(cudnnBackendGetAttribute),
                  cudnnStatus_t(Descriptor, Name, Type, std::int64_t, std::int64_t*, void*)>);
static_assert(kIs<decltype(cudnnBackendExecute), cudnnStatus_t(cudnnHandle_t, Descriptor, Descriptor)>);

using Operation = cublasLtMatmulDesc_t;
using Layout = cublasLtMatrixLayout_t;
using Preference = cublasLtMatmulPreference_t;
using Result = cublasLtMatmulHeuristicResult_t;
static_assert(kIs<decltype(cublasLtGetVersion), Size()>);
static_assert(kIs<decltype(cublasLtGetStatusString), const char*(cublasStatus_t)>);
static_assert(kIs<decltype(cublasLtCreate), cublasStatus_t(cublasLtHandle_t*)>);
static_assert(kIs<decltype(cublasLtDestroy), cublasStatus_t(cublasLtHandle_t)>);
static_assert(
    kIs<decltype(cublasLtMatmulDescCreate), cublasStatus_t(Operation*, cublasComputeType_t, cudaDataType_t)>);
static_assert(kIs<decltype(cublasLtMatmulDescDestroy), cublasStatus_t(Operation)>);
static_assert(kIs<decltype(cublasLtMatmulDescSetAttribute),
                  cublasStatus_t(Operation, cublasLtMatmulDescAttributes_t, const void*, Size)>);
static_assert(kIs<decltype(cublasLtMatrixLayoutCreate),
                  cublasStatus_t(Layout*, cudaDataType, std::uint64_t, std::uint64_t, std::int64_t)>);
static_assert(kIs<decltype(cublasLtMatrixLayoutSetAttribute),
                  cublasStatus_t(Layout, cublasLtMatrixLayoutAttribute_t, const void*, std::size_t)>);
static_assert(kIs<decltype(cublasLtMatrixLayoutDestroy), cublasStatus_t(Layout)>);
static_assert(kIs<decltype(cublasLtMatmulPreferenceCreate), cublasStatus_t(Preference*)>);
static_assert(kIs<decltype(cublasLtMatmulPreferenceDestroy), cublasStatus_t(Preference)>);
static_assert(kIs<decltype(cublasLtMatmulPreferenceSetAttribute),
                  cublasStatus_t(Preference, cublasLtMatmulPreferenceAttributes_t, const void*, Size)>);
static_assert(kIs<decltype(cublasLtMatmulAlgoGetHeuristic),
                  cublasStatus_t(cublasLtHandle_t, Operation, Layout, Layout, Layout, Layout, Preference, int,
                                 Result*, int*)>);
static_assert(kIs<decltype(cublasLtMatmul),
                  cublasStatus_t(cublasLtHandle_t, Operation, const void*, const void*, Layout, const void*,
                                 Layout, const void*, const void*, Layout, void*, Layout,
                                 const cublasLtMatmulAlgo_t*, void*, Size, cudaStream_t)>);
static_assert(sizeof(cublasLtMatmulAlgo_t) == 64 && std::is_trivially_copyable_v<cublasLtMatmulAlgo_t>);
static_assert(kIs<decltype(Result::algo), cublasLtMatmulAlgo_t>);
static_assert(kIs<decltype(Result::workspaceSize), Size> && kIs<decltype(Result::state), cublasStatus_t>);
static_assert(kIs<decltype(Result::wavesCount), float> && sizeof(Result) == 64 + 8 + 4 + 4 + 16);

}  // namespace

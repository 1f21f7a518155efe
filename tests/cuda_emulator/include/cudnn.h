// The part of cuDNN's backend API that Convoy uses, implemented by the emulator. Names, values and meanings
// are those of the cuDNN Backend API reference.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "tests/cuda_emulator/include/cudnn_values.h"

#define CUDNN_MAJOR 9
#define CUDNN_MINOR 19
#define CUDNN_PATCHLEVEL 0
#define CUDNN_VERSION (CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL)

#define CONVOY_ENUMERATOR(name, value) name = value,
enum cudnnStatus_t { CONVOY_CUDNN_STATUSES(CONVOY_ENUMERATOR) };
enum cudnnDataType_t { CONVOY_CUDNN_DATA_TYPES(CONVOY_ENUMERATOR) };
enum cudnnConvolutionMode_t { CONVOY_CUDNN_CONVOLUTION_MODES(CONVOY_ENUMERATOR) };
enum cudnnPointwiseMode_t { CONVOY_CUDNN_POINTWISE_MODES(CONVOY_ENUMERATOR) };
enum cudnnBackendAttributeName_t { CONVOY_CUDNN_ATTRIBUTE_NAMES(CONVOY_ENUMERATOR) };
enum cudnnBackendAttributeType_t { CONVOY_CUDNN_ATTRIBUTE_TYPES(CONVOY_ENUMERATOR) };
enum cudnnBackendDescriptorType_t { CONVOY_CUDNN_DESCRIPTOR_TYPES(CONVOY_ENUMERATOR) };
// The counts depend on the version of cuDNN.
enum cudnnBackendNumericalNote_t {
  CONVOY_CUDNN_NUMERICAL_NOTES(CONVOY_ENUMERATOR) CUDNN_NUMERICAL_NOTE_TYPE_COUNT = 10
};
enum cudnnBackendBehaviorNote_t {
  CONVOY_CUDNN_BEHAVIOR_NOTES(CONVOY_ENUMERATOR) CUDNN_BEHAVIOR_NOTE_TYPE_COUNT = 5
};
enum cudnnBackendKnobType_t { CONVOY_CUDNN_KNOB_TYPES(CONVOY_ENUMERATOR) CUDNN_KNOB_TYPE_COUNTS = 44 };
enum cudnnBackendHeurMode_t { CONVOY_CUDNN_HEURISTIC_MODES(CONVOY_ENUMERATOR) };
#undef CONVOY_ENUMERATOR

struct cudnnContext;
using cudnnHandle_t = cudnnContext*;
using cudnnBackendDescriptor_t = void*;

extern "C" {
std::size_t cudnnGetVersion();
const char* cudnnGetErrorString(cudnnStatus_t status);
/// Writes the reason of the calling thread's last failed call, truncated to `max_size`.
void cudnnGetLastErrorString(char* message, std::size_t max_size);

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor);
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* elements);
/// Writes descriptor-valued attributes into descriptors that the caller passes, one per requested element.
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t requested,
                                       std::int64_t* count, void* elements);
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack);
}

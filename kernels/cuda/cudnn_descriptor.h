// What cuDNN's backend interface is made of: opaque descriptors that are given attributes, one by one, and
// then finalized, which checks them. Here with an owner, and with element types that the compiler knows.
// (NVIDIA cuDNN Backend API, "Descriptor types".)
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/cudnn_check.h"

namespace convoy {

/// How the interface calls an array of T. Raw pointers are data; descriptors are passed as CudnnDescriptor.
template <class T>
inline constexpr cudnnBackendAttributeType_t kCudnnType = [] {
  static_assert(sizeof(T) == 0, "no attribute has this type");
  return CUDNN_TYPE_INT64;
}();
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<std::int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<bool> = CUDNN_TYPE_BOOLEAN;
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<void*> = CUDNN_TYPE_VOID_PTR;
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<cudnnBackendKnobType_t> = CUDNN_TYPE_KNOB_TYPE;
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<cudnnBackendNumericalNote_t> =
    CUDNN_TYPE_NUMERICAL_NOTE;

class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : type_(other.type_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(type_, other.type_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  cudnnBackendDescriptorType_t type() const { return type_; }
  cudnnBackendDescriptor_t get() const { return descriptor_; }

  template <class T>
  void set(cudnnBackendAttributeName_t name, std::span<const T> values) {
    set_elements(name, kCudnnType<T>, static_cast<std::int64_t>(values.size()), values.data());
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    set(name, std::span<const T>(values));
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, const T& value) {
    set(name, std::span<const T>(&value, 1));
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  void set(cudnnBackendAttributeName_t name, const std::vector<CudnnDescriptor>& values);

  void finalize();
  /// A failure is an answer: this engine, or this choice of knobs, is not for that graph on that GPU.
  [[nodiscard]] cudnnStatus_t try_finalize();

  template <class T>
  T get(cudnnBackendAttributeName_t name) const {
    T value{};
    get_elements(name, kCudnnType<T>, 1, &value);
    return value;
  }
  /// However many there are, up to `most`.
  template <class T>
  std::vector<T> get(cudnnBackendAttributeName_t name, std::int64_t most) const {
    std::vector<T> values(static_cast<std::size_t>(most));
    values.resize(get_elements(name, kCudnnType<T>, most, values.data()));
    return values;
  }
  std::vector<CudnnDescriptor> get(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                   std::int64_t most) const;
  /// How many elements the attribute has, where the interface tells.
  std::int64_t count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const;

 private:
  void set_elements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                    const void* elements);
  std::size_t get_elements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                           std::int64_t most, void* elements) const;

  cudnnBackendDescriptorType_t type_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace convoy

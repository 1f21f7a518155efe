// An owning, typed wrapper of cuDNN's backend descriptors. A descriptor is an opaque object whose attributes
// are set one by one; finalizing it validates them. (NVIDIA cuDNN Backend API, "Descriptor types".)
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace convoy::kernels {

/// The attribute type of an array of T. void* is a data pointer; descriptors are passed as CudnnDescriptor.
template <class T>
inline constexpr cudnnBackendAttributeType_t kCudnnType = [] {
  static_assert(sizeof(T) == 0, "no attribute has this type");
  return CUDNN_TYPE_INT64;
}();
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<std::int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<char> = CUDNN_TYPE_CHAR;
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
template <>
inline constexpr cudnnBackendAttributeType_t kCudnnType<cudnnBackendBehaviorNote_t> =
    CUDNN_TYPE_BEHAVIOR_NOTE;

/// A backend descriptor. It is movable and owns the cuDNN object. All functions except try_finalize() throw
/// DeviceError if cuDNN reports an error.
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
  /// Finalizes the descriptor and returns the status. A failure means that the engine or the choice of knobs
  /// does not support the graph on this GPU.
  [[nodiscard]] cudnnStatus_t try_finalize();

  template <class T>
  T get(cudnnBackendAttributeName_t name) const {
    T value{};
    get_elements(name, kCudnnType<T>, 1, &value);
    return value;
  }
  /// Returns the elements of the attribute, at most `maximum`.
  template <class T>
  std::vector<T> get(cudnnBackendAttributeName_t name, std::int64_t maximum) const {
    std::vector<T> values(static_cast<std::size_t>(maximum));
    values.resize(get_elements(name, kCudnnType<T>, maximum, values.data()));
    return values;
  }
  std::vector<CudnnDescriptor> get(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                   std::int64_t maximum) const;
  /// Returns the number of elements of the attribute. cuDNN returns 0 for some attributes that have elements.
  std::int64_t count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const;

 private:
  void set_elements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                    const void* elements);
  std::size_t get_elements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                           std::int64_t maximum, void* elements) const;

  cudnnBackendDescriptorType_t type_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

// CUDNN_CHECK(call): throws DeviceError with the text of the call, its file and line, and cuDNN's error
// message if it failed.

/// Returns a description of `status`, such as "CUDNN_STATUS_BAD_PARAM (2000): …", with the message of the
/// calling thread's last failed call.
std::string cudnn_failure(cudnnStatus_t status);

/// Throws DeviceError if `status` is an error. CUDNN_CHECK calls it.
void cudnn_check(cudnnStatus_t status, const char* call, const char* file, int line);

}  // namespace convoy::kernels

/// A macro, because the message contains the text of the expression.
#define CUDNN_CHECK(call) ::convoy::kernels::cudnn_check((call), #call, __FILE__, __LINE__)

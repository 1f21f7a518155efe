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

using CudnnType = cudnnBackendAttributeType_t;
/// Returns the attribute type of an array. void* is a data pointer; descriptors are passed as CudnnDescriptor.
constexpr CudnnType cudnn_type(const std::int64_t*) { return CUDNN_TYPE_INT64; }
constexpr CudnnType cudnn_type(const char*) { return CUDNN_TYPE_CHAR; }
constexpr CudnnType cudnn_type(const float*) { return CUDNN_TYPE_FLOAT; }
constexpr CudnnType cudnn_type(const bool*) { return CUDNN_TYPE_BOOLEAN; }
constexpr CudnnType cudnn_type(void* const*) { return CUDNN_TYPE_VOID_PTR; }
constexpr CudnnType cudnn_type(const cudnnHandle_t*) { return CUDNN_TYPE_HANDLE; }
constexpr CudnnType cudnn_type(const cudnnDataType_t*) { return CUDNN_TYPE_DATA_TYPE; }
constexpr CudnnType cudnn_type(const cudnnConvolutionMode_t*) { return CUDNN_TYPE_CONVOLUTION_MODE; }
constexpr CudnnType cudnn_type(const cudnnPointwiseMode_t*) { return CUDNN_TYPE_POINTWISE_MODE; }
constexpr CudnnType cudnn_type(const cudnnBackendHeurMode_t*) { return CUDNN_TYPE_HEUR_MODE; }
constexpr CudnnType cudnn_type(const cudnnBackendKnobType_t*) { return CUDNN_TYPE_KNOB_TYPE; }
constexpr CudnnType cudnn_type(const cudnnBackendNumericalNote_t*) { return CUDNN_TYPE_NUMERICAL_NOTE; }
constexpr CudnnType cudnn_type(const cudnnBackendBehaviorNote_t*) { return CUDNN_TYPE_BEHAVIOR_NOTE; }

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
    set_elements(name, cudnn_type(values.data()), static_cast<std::int64_t>(values.size()), values.data());
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
    get_elements(name, cudnn_type(&value), 1, &value);
    return value;
  }
  /// Returns the elements of the attribute, at most `maximum`.
  template <class T>
  std::vector<T> get(cudnnBackendAttributeName_t name, std::int64_t maximum) const {
    std::vector<T> values(static_cast<std::size_t>(maximum));
    values.resize(get_elements(name, cudnn_type(values.data()), maximum, values.data()));
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
#define CUDNN_CHECK(call) ::convoy::kernels::cudnn_check((call), #call, __FILE_NAME__, __LINE__)

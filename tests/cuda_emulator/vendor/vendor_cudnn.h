// Helpers that create cuDNN descriptors, for tests of the emulated library. The real library accepts the
// same.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace convoy::emulator {

/// The cuDNN attribute type for elements of type T.
template <class T>
inline constexpr int kTypeOf = -1;
template <>
inline constexpr int kTypeOf<bool> = CUDNN_TYPE_BOOLEAN;
template <>
inline constexpr int kTypeOf<std::int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr int kTypeOf<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr int kTypeOf<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr int kTypeOf<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr int kTypeOf<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr int kTypeOf<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr int kTypeOf<cudnnBackendKnobType_t> = CUDNN_TYPE_KNOB_TYPE;
template <>
inline constexpr int kTypeOf<cudnnBackendBehaviorNote_t> = CUDNN_TYPE_BEHAVIOR_NOTE;
template <>
inline constexpr int kTypeOf<cudnnBackendNumericalNote_t> = CUDNN_TYPE_NUMERICAL_NOTE;
template <>
inline constexpr int kTypeOf<cudnnHandle_t> = CUDNN_TYPE_HANDLE;

using Ints = std::vector<std::int64_t>;

/// A descriptor that stores the first failed status.
class RawDescriptor {
 public:
  explicit RawDescriptor(cudnnBackendDescriptorType_t type) {
    note(cudnnBackendCreateDescriptor(type, &descriptor_));
  }
  ~RawDescriptor() { destroy(); }
  RawDescriptor(RawDescriptor&& other) noexcept : descriptor_(other.descriptor_), status_(other.status_) {
    other.descriptor_ = nullptr;
  }
  RawDescriptor& operator=(RawDescriptor&&) = delete;

  void destroy() {
    if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
    descriptor_ = nullptr;
  }
  cudnnBackendDescriptor_t get() const { return descriptor_; }
  cudnnStatus_t status() const { return status_; }

  template <class T>
  RawDescriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, static_cast<cudnnBackendAttributeType_t>(kTypeOf<T>), 1, &value);
  }
  RawDescriptor& set(cudnnBackendAttributeName_t name, const Ints& values) {
    return set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  RawDescriptor& set(cudnnBackendAttributeName_t name, const std::vector<void*>& values) {
    return set(name, CUDNN_TYPE_VOID_PTR, static_cast<std::int64_t>(values.size()), values.data());
  }
  RawDescriptor& set(cudnnBackendAttributeName_t name, const RawDescriptor& value) {
    return set(name, std::vector<const RawDescriptor*>{&value});
  }
  RawDescriptor& set(cudnnBackendAttributeName_t name, const std::vector<const RawDescriptor*>& values) {
    std::vector<void*> raw;
    for (const RawDescriptor* const value : values) raw.push_back(value->get());
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(raw.size()), raw.data());
  }
  RawDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                     const void* elements) {
    note(cudnnBackendSetAttribute(descriptor_, name, type, count, elements));
    return *this;
  }
  RawDescriptor& finalize() {
    note(cudnnBackendFinalize(descriptor_));
    return *this;
  }

  /// Returns all elements of an attribute.
  template <class T>
  std::vector<T> get(cudnnBackendAttributeName_t name) {
    const auto type = static_cast<cudnnBackendAttributeType_t>(kTypeOf<T>);
    std::int64_t count = 0;
    note(cudnnBackendGetAttribute(descriptor_, name, type, 0, &count, nullptr));
    std::vector<T> values(static_cast<std::size_t>(count));
    if (count > 0) note(cudnnBackendGetAttribute(descriptor_, name, type, count, &count, values.data()));
    return values;
  }
  std::vector<RawDescriptor> get(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) {
    std::int64_t count = 0;
    note(cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
    std::vector<RawDescriptor> values;
    std::vector<void*> raw;
    for (std::int64_t i = 0; i < count; ++i) raw.push_back(values.emplace_back(type).get());
    if (count > 0)
      note(cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                                    raw.data()));
    while (std::cmp_less(count, values.size()))
      values.pop_back();  // the library may return fewer than it announced
    return values;
  }

 private:
  void note(cudnnStatus_t status) {
    if (status_ == CUDNN_STATUS_SUCCESS) status_ = status;
  }

  cudnnBackendDescriptor_t descriptor_ = nullptr;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
};

/// A tensor descriptor. Members without a value are not set.
struct TensorSpec {
  std::optional<std::int64_t> id = 1;
  std::optional<cudnnDataType_t> type = CUDNN_DATA_FLOAT;
  std::optional<Ints> dims = Ints{2, 8, 5, 5};
  std::optional<Ints> strides = {};  // default for four dimensions: channels-last
  std::optional<std::int64_t> alignment = 16;
  bool is_virtual = false;

  RawDescriptor make() const {
    RawDescriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (id) made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, *id);
    if (type) made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, *type);
    if (dims) made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, *dims);
    if (strides)
      made.set(CUDNN_ATTR_TENSOR_STRIDES, *strides);
    else if (dims && dims->size() == 4)
      made.set(CUDNN_ATTR_TENSOR_STRIDES, channels_last(*dims));
    if (alignment) made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, *alignment);
    if (is_virtual) made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
    made.finalize();
    return made;
  }
  static Ints channels_last(const Ints& d) { return {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]}; }
};

/// A convolution descriptor. Members without a value are not set.
struct ConvolutionSpec {
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  std::int64_t spatial_dims = 2;
  std::optional<Ints> strides = Ints{1, 1}, dilations = Ints{1, 1}, padding = Ints{1, 1};

  RawDescriptor make() const {
    RawDescriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, compute);
    made.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, mode);
    made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, spatial_dims);
    if (strides) made.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, *strides);
    if (dilations) made.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, *dilations);
    if (padding) made.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, *padding);
    if (padding) made.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, *padding);
    made.finalize();
    return made;
  }
};

/// The attribute names of a convolution operation in one direction.
struct OperationNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
};
inline constexpr OperationNames kForward{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
inline constexpr OperationNames kBackwardData{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
inline constexpr OperationNames kBackwardFilter{
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};

inline RawDescriptor make_operation(const OperationNames& names, const RawDescriptor& x,
                                    const RawDescriptor& w, const RawDescriptor& y,
                                    const RawDescriptor& convolution, float alpha = 1, float beta = 0) {
  RawDescriptor made(names.operation);
  made.set(names.x, x).set(names.w, w).set(names.y, y).set(names.convolution, convolution);
  made.set(names.alpha, alpha).set(names.beta, beta).finalize();
  return made;
}

inline RawDescriptor make_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t compute = CUDNN_DATA_FLOAT) {
  RawDescriptor made(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  made.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, compute).finalize();
  return made;
}

/// Creates a pointwise operation. `b` may be null.
inline RawDescriptor make_operation(const RawDescriptor& pointwise, const RawDescriptor& x,
                                    const RawDescriptor* b, const RawDescriptor& y) {
  RawDescriptor made(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != nullptr) made.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y).finalize();
  return made;
}

}  // namespace convoy::emulator

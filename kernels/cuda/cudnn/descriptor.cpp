// Attributes of cuDNN backend descriptors.
#include "convoy/kernels/cuda/cudnn/descriptor.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/library_versions.h"

namespace convoy::kernels {
namespace {

std::vector<cudnnBackendDescriptor_t> handles_of(const std::vector<CudnnDescriptor>& descriptors) {
  std::vector<cudnnBackendDescriptor_t> handles;
  std::transform(descriptors.begin(), descriptors.end(), std::back_inserter(handles),
                 [](const CudnnDescriptor& descriptor) { return descriptor.get(); });
  return handles;
}

}  // namespace

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) : type_(type) {
  CUDNN_CHECK(cudnnBackendCreateDescriptor(type, &descriptor_));
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  set_elements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const std::vector<CudnnDescriptor>& values) {
  set_elements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(values.size()),
               handles_of(values).data());
}

void CudnnDescriptor::finalize() { CUDNN_CHECK(cudnnBackendFinalize(descriptor_)); }

cudnnStatus_t CudnnDescriptor::try_finalize() { return cudnnBackendFinalize(descriptor_); }

std::vector<CudnnDescriptor> CudnnDescriptor::get(cudnnBackendAttributeName_t name,
                                                  cudnnBackendDescriptorType_t type,
                                                  std::int64_t maximum) const {
  std::vector<CudnnDescriptor> values;
  std::generate_n(std::back_inserter(values), maximum, [&] { return CudnnDescriptor(type); });
  std::vector<cudnnBackendDescriptor_t> handles = handles_of(values);
  const std::size_t filled = get_elements(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, maximum, handles.data());
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(filled), values.end());
  return values;
}

std::int64_t CudnnDescriptor::count(cudnnBackendAttributeName_t name,
                                    cudnnBackendAttributeType_t type) const {
  std::int64_t elements = 0;
  CUDNN_CHECK(cudnnBackendGetAttribute(descriptor_, name, type, 0, &elements, nullptr));
  return elements;
}

void CudnnDescriptor::set_elements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                   std::int64_t count, const void* elements) {
  CUDNN_CHECK(cudnnBackendSetAttribute(descriptor_, name, type, count, elements));
}

std::size_t CudnnDescriptor::get_elements(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                          std::int64_t maximum, void* elements) const {
  std::int64_t filled = 0;
  CUDNN_CHECK(cudnnBackendGetAttribute(descriptor_, name, type, maximum, &filled, elements));
  return static_cast<std::size_t>(std::min(filled, maximum));
}

std::string cudnn_failure(cudnnStatus_t status) {
  std::array<char, 512> message{};
  cudnnGetLastErrorString(message.data(), message.size());
  std::string text = fmt::format("{} ({})", cudnnGetErrorString(status), static_cast<int>(status));
  if (message[0] != '\0') text += fmt::format(": {}", message.data());
  return text;
}

void cudnn_check(cudnnStatus_t status, const char* call, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail<DeviceError>("{} failed: {}, {}:{}", call, cudnn_failure(status), file, line);
}

}  // namespace convoy::kernels

namespace convoy {

std::string cudnn_version_text() {
  const std::size_t version = cudnnGetVersion();
  return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace convoy

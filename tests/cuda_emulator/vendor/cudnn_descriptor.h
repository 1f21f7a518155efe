// cuDNN descriptors: attributes by name, checked against the rules of the descriptor's type.
#pragma once

#include <cudnn.h>

#include <any>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_emulator/vendor/vendor_state.h"

namespace convoy::emulator {

using CudnnRefusal = Refusal<cudnnStatus_t>;
/// Throws a CudnnRefusal.
[[noreturn]] void refuse(cudnnStatus_t status, const std::string& why);
/// Throws a CudnnRefusal with BAD_PARAM unless `condition` is true.
void require(bool condition, const std::string& why);

struct Descriptor;
using DescriptorPtr = std::shared_ptr<Descriptor>;

/// Calls memcpy unless `bytes` is 0: memcpy does not accept null pointers.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

/// The value of an attribute.
struct Attribute {
  cudnnBackendAttributeType_t type{};
  std::int64_t count = 0;
  std::vector<std::byte> bytes = {};            // the elements, unless they are descriptors
  std::vector<DescriptorPtr> descriptors = {};  // the elements, if they are descriptors
};

/// A descriptor of any type.
struct Descriptor {
  explicit Descriptor(cudnnBackendDescriptorType_t of) : type(of) {}

  cudnnBackendDescriptorType_t type;
  bool is_finalized = false;
  bool is_destroyed = false;  // by its owner; other descriptors may still refer to it
  std::map<cudnnBackendAttributeName_t, Attribute> attributes = {};
  std::any object = {};  // the result of finalizing: a Tensor, a Graph, …

  bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
  /// Returns all elements, or none if the attribute is not set.
  template <class T>
  std::vector<T> values(cudnnBackendAttributeName_t name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<T> result(found->second.bytes.size() / sizeof(T));
    copy_bytes(result.data(), found->second.bytes.data(), result.size() * sizeof(T));
    return result;
  }
  /// Returns the first element of an attribute that must be set.
  template <class T>
  T value(cudnnBackendAttributeName_t name) const {
    T result;
    std::memcpy(&result, attributes.at(name).bytes.data(), sizeof(T));
    return result;
  }
  /// Returns an attribute that is a float or a double.
  double number(cudnnBackendAttributeName_t name, double default_value) const;
  const Descriptor& nested(cudnnBackendAttributeName_t name) const {
    return *attributes.at(name).descriptors.at(0);
  }
  template <class T>
  const T& as() const {
    return std::any_cast<const T&>(object);
  }

  /// Sets a read-only attribute, which the caller may read later.
  template <class T>
  void put(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t of, const std::vector<T>& elements) {
    Attribute& attribute =
        attributes[name] = {.type = of, .count = static_cast<std::int64_t>(elements.size())};
    attribute.bytes.resize(elements.size() * sizeof(T));
    copy_bytes(attribute.bytes.data(), elements.data(), attribute.bytes.size());
  }
  void put(cudnnBackendAttributeName_t name, std::vector<DescriptorPtr> elements);
};

/// Return the name of the enumerator: "CUDNN_BACKEND_TENSOR_DESCRIPTOR".
std::string to_string(cudnnBackendDescriptorType_t type);
std::string to_string(cudnnBackendAttributeName_t name);

/// The live descriptors by address.
class Descriptors {
 public:
  cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type);
  void destroy(cudnnBackendDescriptor_t descriptor);
  /// Returns the descriptor. Throws a CudnnRefusal for an invalid handle.
  DescriptorPtr find(const void* descriptor) const;

 private:
  std::map<const void*, DescriptorPtr> alive_;
};
Descriptors& descriptors();

/// Implement cudnnBackendSetAttribute and cudnnBackendGetAttribute. Throw a CudnnRefusal if a rule is
/// violated.
void set_attribute(Descriptor& descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t count, const void* elements);
void get_attribute(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, std::int64_t requested, std::int64_t* count,
                   void* elements);
/// Throws a CudnnRefusal unless all required attributes are set and all nested descriptors are alive.
void check_complete(const Descriptor& descriptor);

}  // namespace convoy::emulator

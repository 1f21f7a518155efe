// cuDNN's descriptors: attributes by name, each checked against what its descriptor has.
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

#include "tests/cuda_emulator/vendor_state.h"

namespace convoy::emulator {

using CudnnRefusal = Refusal<cudnnStatus_t>;
[[noreturn]] void refuse(cudnnStatus_t status, const std::string& why);
/// Refuses with BAD_PARAM.
void require(bool condition, const std::string& why);

struct Descriptor;
using DescriptorPtr = std::shared_ptr<Descriptor>;

/// memcpy wants pointers even for nothing.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

struct Attribute {
  cudnnBackendAttributeType_t type{};
  std::int64_t count = 0;
  std::vector<std::byte> bytes = {};            // of plain elements
  std::vector<DescriptorPtr> descriptors = {};  // or these
};

struct Descriptor {
  explicit Descriptor(cudnnBackendDescriptorType_t of) : type(of) {}

  cudnnBackendDescriptorType_t type;
  bool is_finalized = false;
  bool is_destroyed = false;  // by its owner; others may hold it still
  std::map<cudnnBackendAttributeName_t, Attribute> attributes = {};
  std::any made = {};  // what finalizing made of them: a Tensor, a Graph, …

  bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
  /// All elements; none where the attribute is not set.
  template <class T>
  std::vector<T> values(cudnnBackendAttributeName_t name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<T> result(found->second.bytes.size() / sizeof(T));
    copy_bytes(result.data(), found->second.bytes.data(), result.size() * sizeof(T));
    return result;
  }
  /// The first element of an attribute that is set.
  template <class T>
  T value(cudnnBackendAttributeName_t name) const {
    T result;
    std::memcpy(&result, attributes.at(name).bytes.data(), sizeof(T));
    return result;
  }
  /// A float or a double.
  double number(cudnnBackendAttributeName_t name, double otherwise) const;
  const Descriptor& nested(cudnnBackendAttributeName_t name) const {
    return *attributes.at(name).descriptors.at(0);
  }
  template <class T>
  const T& as() const {
    return std::any_cast<const T&>(made);
  }

  /// From inside the library: what a caller may read later.
  template <class T>
  void put(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t of, const std::vector<T>& elements) {
    Attribute& attribute =
        attributes[name] = {.type = of, .count = static_cast<std::int64_t>(elements.size())};
    attribute.bytes.resize(elements.size() * sizeof(T));
    copy_bytes(attribute.bytes.data(), elements.data(), attribute.bytes.size());
  }
  void put(cudnnBackendAttributeName_t name, std::vector<DescriptorPtr> elements);
};

/// "CUDNN_BACKEND_TENSOR_DESCRIPTOR", …
std::string name_of(cudnnBackendDescriptorType_t type);
std::string name_of(cudnnBackendAttributeName_t name);

/// Those that were created and not destroyed. By address, since nothing else is known of what a caller gives.
class Descriptors {
 public:
  cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type);
  void destroy(cudnnBackendDescriptor_t descriptor);
  /// Refuses what is none.
  DescriptorPtr find(const void* descriptor) const;

 private:
  std::map<const void*, DescriptorPtr> alive_;
};
Descriptors& descriptors();

void set_attribute(Descriptor& descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t count, const void* elements);
void get_attribute(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, std::int64_t requested, std::int64_t* count,
                   void* elements);
/// That what has to be set is set, and what it is made from is still there.
void check_complete(const Descriptor& descriptor);

}  // namespace convoy::emulator

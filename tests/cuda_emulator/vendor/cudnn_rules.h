// The attributes of each type of cuDNN descriptor.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <vector>

namespace convoy::emulator {

/// Whether the caller must set an attribute. The library sets a read_only one when the descriptor is
/// finalized.
enum class Presence : std::uint8_t { required, optional, read_only };

/// The properties of one attribute.
struct AttributeRule {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;       // FLOAT also accepts DOUBLE
  std::int64_t minimum = 1, maximum = 1;  // number of elements
  Presence presence = Presence::required;
  std::vector<cudnnBackendDescriptorType_t> nested = {};  // permitted types of a BACKEND_DESCRIPTOR
};

/// Returns the attributes of a descriptor type; empty if the type is not supported.
const std::vector<AttributeRule>& rules_of(cudnnBackendDescriptorType_t type);

}  // namespace convoy::emulator

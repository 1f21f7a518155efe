// Which attributes a descriptor has.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <vector>

namespace convoy::emulator {

/// Given back: set by the library, when the descriptor is finalized.
enum class Presence : std::uint8_t { required, optional, given_back };

struct AttributeRule {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;  // FLOAT stands for DOUBLE, too
  std::int64_t least = 1, most = 1;  // elements
  Presence presence = Presence::required;
  std::vector<cudnnBackendDescriptorType_t> nested = {};  // what a BACKEND_DESCRIPTOR may be
};

/// Empty: there is no such descriptor.
const std::vector<AttributeRule>& rules_of(cudnnBackendDescriptorType_t type);

}  // namespace convoy::emulator

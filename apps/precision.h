// --precision: in which types a network is kept and computed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/runtime/device.h"

namespace convoy {

/// Mixed precision (Micikevicius et al., arXiv:1710.03740): activations and their gradients are half types,
/// parameters, optimizer state and statistics stay f32.
struct Precision {
  std::string name;  // "bf16"
  DType parameters;  // also of optimizer state and checkpoints
  DType compute;     // of batches and activations
  bool tf32;         // products and convolutions of f32 may round their factors to 10 bits

  bool is_half() const { return compute == DType::f16 || compute == DType::bf16; }
};

/// "fp64", "fp32", "tf32", "bf16", "fp16".
const std::vector<std::string>& precision_names();
/// UsageError for any other word.
Precision parse_precision(std::string_view name);

/// Whether this device computes in it.
bool supports(const Device& device, const Precision& precision);
/// UsageError for a precision that the CPU does not compute in, DeviceError for one that this GPU is too old
/// for.
void check_precision(const Precision& precision, const Device& device);

}  // namespace convoy

// The precisions of --precision: the element types of parameters and of computation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convoy/kernels/runtime/device_context.h"

namespace convoy {

/// The element types of one precision. With bf16 and fp16 (mixed precision, Micikevicius et al.,
/// arXiv:1710.03740), activations and their gradients are bf16 or f16; parameters, optimizer state and
/// statistics stay f32.
struct Precision {
  std::string name;  // "bf16"
  DType parameters;  // type of parameters, optimizer state and checkpoints
  DType compute;     // type of batches and activations
  bool tf32;         // GEMMs and convolutions of f32 may round their inputs to 10 mantissa bits

  bool is_half() const { return compute == DType::f16 || compute == DType::bf16; }
};

/// Returns "fp64", "fp32", "tf32", "bf16", "fp16".
std::vector<std::string> precision_names();
/// Returns the precision `name`. Throws UsageError for an unknown name.
Precision parse_precision(std::string_view name);

/// Returns whether the device can compute in this precision.
bool supports(const DeviceContext& device, const Precision& precision);
/// Throws UsageError if the device does not support the precision.
void check_precision(const Precision& precision, const DeviceContext& device);

}  // namespace convoy

// What computes, and in which precision.
#pragma once

#include <cstdint>
#include <string>

#include "apps/command_line.h"
#include "kernels/runtime/device.h"

namespace convoy {

struct ComputeOptions {
  std::string device = "auto";
  std::int64_t threads = 0;
  std::string no_gpu = "";  // where a build for GPUs has to make do with the CPU: why. Set by open_device
};

void add_compute_flags(CommandLine& line, ComputeOptions& options);

/// Replaces what stands for a choice of the program's ("auto", 0) by the choice. DeviceError for what this
/// build or machine has not.
Device open_device(ComputeOptions& options);

/// "fp32" and "fp64" are the flag's words for f32 and f64.
DType parse_precision(std::string_view text);

}  // namespace convoy

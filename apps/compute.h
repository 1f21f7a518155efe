// What computes, and in which precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "apps/command_line.h"
#include "kernels/runtime/device.h"

namespace convoy {

struct ComputeOptions {
  std::string device = "auto";
  std::int64_t threads = 0;
  std::optional<bool> data_on_device;  // by default on a GPU that has the room
  std::string no_gpu = "";  // where a build for GPUs has to make do with the CPU: why. Set by open_device
};

void add_compute_flags(CommandLine& line, ComputeOptions& options);
/// --data-on-device, for programs that go over whole data sets.
void add_data_on_device_flag(CommandLine& line, ComputeOptions& options);

/// Replaces what stands for a choice of the program's ("auto", 0) by the choice. DeviceError for what this
/// build or machine has not.
Device open_device(ComputeOptions& options);

/// Whether a set of so many bytes is to lie in the memory of a GPU: as the flag says, else where it takes at
/// most a quarter of what is free there. UsageError for a CPU, in whose memory every set lies.
bool keeps_on_device(const ComputeOptions& options, const Device& device, std::size_t bytes);

/// "fp32" and "fp64" are the flag's words for f32 and f64.
DType parse_precision(std::string_view text);

}  // namespace convoy

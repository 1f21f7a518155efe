// What computes, and in which precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "apps/command_line.h"
#include "apps/precision.h"
#include "comm/rank_info.h"
#include "kernels/runtime/device.h"

namespace convoy {

struct ComputeOptions {
  std::string device = "auto";
  std::int64_t threads = 0;
  std::optional<bool> data_on_device;  // by default on a GPU that has the room
  std::optional<bool> cuda_graph;      // by default on a GPU
  bool deterministic = false;
  std::string plan_cache = "auto";
  std::string no_gpu = "";  // where a build for GPUs has to make do with the CPU: why. Set by open_device
};

void add_compute_flags(CommandLine& line, ComputeOptions& options);
/// --data-on-device, for programs that go over whole data sets.
void add_data_on_device_flag(CommandLine& line, ComputeOptions& options);

/// --deterministic and --plan-cache, for programs that use the same shapes again and again.
void add_algorithm_flags(CommandLine& line, ComputeOptions& options);
/// UsageError for a file of --plan-cache that would neither be read nor written.
void check_plan_cache(const ComputeOptions& options, const Device& device);
/// --cuda-graph, for programs that train.
void add_cuda_graph_flag(CommandLine& line, ComputeOptions& options);

/// Replaces what stands for a choice of the program's ("auto", 0) by the choice: each rank of a host takes a
/// GPU of its own, and its part of the cores that `ranks_on_my_cores` ranks may run on. DeviceError for what
/// this build or machine has not.
Device open_device(ComputeOptions& options, const Precision& precision, const RankInfo& rank = {},
                   int ranks_on_my_cores = 1);

/// Whether a set of so many bytes is to lie in the memory of a GPU: as the flag says, else where it takes at
/// most a quarter of what is free there. UsageError for a CPU, in whose memory every set lies.
bool keeps_on_device(const ComputeOptions& options, const Device& device, std::size_t bytes);

/// Whether updates are recorded and replayed as graphs. UsageError where the flag asks for that on a CPU.
bool records_updates(const ComputeOptions& options, const Device& device);

}  // namespace convoy

// Flags for the compute device, its precision and its algorithms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convoy/apps/common/precision.h"
#include "convoy/apps/flags/command_line.h"
#include "convoy/comm/bootstrap/host.h"
#include "convoy/datasets/dataset.h"
#include "convoy/kernels/runtime/device_context.h"

namespace convoy {

struct ComputeOptions {
  std::string device = "auto";
  std::int64_t threads = 0;
  /// Default: on a GPU with enough free memory.
  std::optional<bool> data_on_device;
  /// Default: on a GPU.
  std::optional<bool> cuda_graph;
  bool deterministic = false;
  std::string plan_cache = "auto";
  /// Default: the highest level of the processor, for each library.
  std::optional<std::string> cpu_level;
  /// Why a build with CUDA computes on the CPU; empty if it does not. Set by open_device().
  std::string no_gpu = "";
};

/// Adds --device and --threads.
void add_compute_flags(CommandLine& line, ComputeOptions& options);
/// Adds --data-on-device, for programs that iterate over whole data sets.
void add_data_on_device_flag(CommandLine& line, ComputeOptions& options);

/// Adds --cuda-graph, --deterministic and --plan-cache, for programs that train.
void add_algorithm_flags(CommandLine& line, ComputeOptions& options);
/// Throws UsageError if --plan-cache names a file that would be neither read nor written.
void check_algorithm_flags(const ComputeOptions& options, const DeviceContext& device);
/// Adds --cpu-level, for programs whose results are compared between machines. The program calls
/// use_cpu_level() with its value.
void add_cpu_level_flag(CommandLine& line, ComputeOptions& options);
/// Returns the levels of x86-64 processors that use_cpu_level() accepts, in ascending order.
std::vector<std::string> cpu_level_names();

/// Makes the kernels, oneDNN, OpenBLAS and the C library use the instructions of a level and no others. The
/// libraries are loaded before main, so unless the environment selects this level already, this starts the
/// program again with the same arguments and does not return. Call it before there are threads, ranks or
/// output. Throws UsageError for an unknown level, and if the processor or the build does not have it.
void use_cpu_level(const std::string& level);

/// Calls use_cpu_level() with the environment variable CONVOY_CPU_LEVEL, if it is set.
void use_cpu_level_of_environment();

/// Opens the device of `options` and replaces the values "auto" and 0 in `options` by what was chosen. Each
/// rank of a host gets its own GPU, or 1 / `ranks_on_my_cores` of the cores that this process may use. Throws
/// DeviceError if this build or machine does not have the device.
DeviceContext open_device(ComputeOptions& options, const Precision& precision,
                          const dist::RankInfo& rank = {}, int ranks_on_my_cores = 1);

/// Returns whether a set is kept in GPU memory: the value of the flag or, without it, whether it is in memory and needs at
/// most a quarter of the free memory of the GPU. Throws UsageError if the flag is set and the device is the CPU, or the
/// set not in memory.
bool keep_data_on_device(const ComputeOptions& options, const DeviceContext& device,
                         const data::ImageSet& set);

/// Returns whether training steps are captured and replayed as CUDA graphs. Throws UsageError if the flag is
/// set and the device is the CPU.
bool use_cuda_graph(const ComputeOptions& options, const DeviceContext& device);

}  // namespace convoy

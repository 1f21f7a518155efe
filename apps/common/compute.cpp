#include "convoy/apps/common/compute.h"

#include <algorithm>
#include <variant>

#include "convoy/apps/common/cpu_level/cpu_level.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

/// In a build with CUDA, Stream is a variant of two types.
constexpr bool kHasCuda = std::variant_size_v<Stream> != 1;

}  // namespace

void add_compute_flags(CommandLine& line, ComputeOptions& options) {
  line.group("Precision and device");
  line.add("device", &options.device, "Compute device: auto, cpu, cuda, cuda:N", {.value = "DEVICE"});
  line.add("threads", &options.threads, "CPU compute threads; 0: all available cores",
           {.value = "N", .minimum = 0, .maximum = 1024, .advanced = true});
}

void add_data_on_device_flag(CommandLine& line, ComputeOptions& options) {
  line.group("Precision and device");
  line.add(
      "data-on-device", &options.data_on_device, "Data set in GPU memory, with augmentation on the GPU",
      {.default_text = "true if the data set needs at most 1/4 of the free GPU memory", .advanced = true});
}

void add_algorithm_flags(CommandLine& line, ComputeOptions& options) {
  line.group("Precision and device");
  line.add("deterministic", &options.deterministic, "Deterministic GPU algorithms only, without autotuning",
           {.advanced = true});
  line.add("plan-cache", &options.plan_cache,
           "GPU algorithm cache between runs: a file, auto (in the user's cache directory), or none",
           {.value = "FILE", .advanced = true});
  line.add(
      "convolutions", &options.convolutions,
      "Convolutions on a GPU: cudnn, implicit_gemm (this project's kernels, which compute 3x3 convolutions in "
      "half precision), or auto (the fastest)",
      {.value = "NAME", .choices = {"auto", "cudnn", "implicit_gemm"}, .advanced = true});
}

void check_algorithm_flags(const ComputeOptions& options, const DeviceContext& device) {
  check(options.convolutions == "auto" || device.kind() == DeviceKind::cuda,
        "--convolutions {}: found --device {}, expected a GPU", options.convolutions, device.name());
  if (options.plan_cache == "auto" || options.plan_cache == "none") return;
  check(device.kind() == DeviceKind::cuda, "--plan-cache {}: the CPU has no autotuning, expected a GPU",
        options.plan_cache);
  check(!options.deterministic,
        "--plan-cache {}: --deterministic disables autotuning, expected only one of the two",
        options.plan_cache);
}

void add_cpu_level_flag(CommandLine& line, ComputeOptions& options) {
  line.group("Precision and device");
  line.add("cpu-level", &options.cpu_level,
           "Instructions of the CPU code, for the same results on different processors",
           {.value = "LEVEL",
            .default_text = "the best of the processor",
            .choices = cpu_level_names(),
            .advanced = true});
}

void add_cuda_graph_flag(CommandLine& line, ComputeOptions& options) {
  line.group("Precision and device");
  line.add("cuda-graph", &options.cuda_graph, "Capture and replay of the training step as one CUDA graph",
           {.default_text = "true on a GPU", .advanced = true});
}

bool use_cuda_graph(const ComputeOptions& options, const DeviceContext& device) {
  const bool is_gpu = device.kind() == DeviceKind::cuda;
  check(is_gpu || !options.cuda_graph.value_or(false), "--cuda-graph: found --device {}, expected a GPU",
        device.name());
  return options.cuda_graph.value_or(is_gpu);
}

bool keep_data_on_device(const ComputeOptions& options, const DeviceContext& device, std::size_t bytes) {
  const bool is_gpu = device.kind() == DeviceKind::cuda;
  check(is_gpu || !options.data_on_device.value_or(false),
        "--data-on-device: found --device {}, expected a GPU", device.name());
  return options.data_on_device.value_or(is_gpu && bytes <= device.memory().available() / 4);
}

DeviceContext open_device(ComputeOptions& options, const Precision& precision, const dist::RankInfo& rank,
                          int ranks_on_my_cores) {
  if (options.threads == 0) options.threads = std::max(1, available_cores() / ranks_on_my_cores);
  // If the launcher made one GPU visible to each rank, the modulus selects that GPU on every rank.
  std::string name = options.device;
  if (const int gpus = cuda_availability().count; gpus > 0 && (name == "auto" || name == "cuda"))
    name = fmt::format("cuda:{}", rank.local_rank % gpus);
  const DeviceContext device = DeviceContext::create(
      Device::parse(name), {.threads = static_cast<int>(options.threads)},
      {.tf32 = precision.tf32,
       .deterministic = options.deterministic,
       .convolutions = options.convolutions == "cudnn"           ? Convolutions::cudnn
                       : options.convolutions == "implicit_gemm" ? Convolutions::implicit_gemm
                                                                 : Convolutions::fastest});
  if (kHasCuda && options.device == "auto" && device.kind() == DeviceKind::cpu)
    options.no_gpu = cuda_availability().reason;
  // The resolved flag must be equal on all ranks, so it omits the index of a GPU that depends on the rank.
  const bool depends_on_rank = name != options.device && rank.world_size > 1;
  options.device = depends_on_rank ? "cuda" : device.name();
  return device;
}

}  // namespace convoy

#include "apps/compute.h"

#include <algorithm>
#include <variant>

#include "kernels/runtime/check.h"

namespace convoy {
namespace {

/// A stream of such a build may be one of two kinds.
constexpr bool kBuiltForGpus = std::variant_size_v<Stream> != 1;

}  // namespace

void add_compute_flags(CommandLine& line, ComputeOptions& options) {
  line.add("device", &options.device, "Where to compute: auto, cpu, cuda, cuda:N", {.value = "DEVICE"});
  line.add("threads", &options.threads, "Cores that the CPU computes on; 0: all that this process may use",
           {.value = "N", .least = 0, .most = 1024});
}

void add_data_on_device_flag(CommandLine& line, ComputeOptions& options) {
  line.add("data-on-device", &options.data_on_device,
           "Keep the images in the GPU's memory, as bytes, and let it augment them",
           {.default_is = "where they take at most a quarter of what the GPU has free"});
}

void add_algorithm_flags(CommandLine& line, ComputeOptions& options) {
  line.add(
      "deterministic", &options.deterministic,
      "On a GPU, time no algorithms and take none that does not repeat itself: the same bytes on every run");
  line.add(
      "plan-cache", &options.plan_cache,
      "Where a GPU's timed algorithms are kept for the next run: a file; auto: in the user's cache; none",
      {.value = "FILE"});
}

void check_plan_cache(const ComputeOptions& options, const Device& device) {
  if (options.plan_cache == "auto" || options.plan_cache == "none") return;
  check(device.kind() == DeviceKind::cuda, "--plan-cache {}: the CPU times no algorithms, expected a GPU",
        options.plan_cache);
  check(!options.deterministic,
        "--plan-cache {}: --deterministic times no algorithms, expected one of the two", options.plan_cache);
}

void add_cuda_graph_flag(CommandLine& line, ComputeOptions& options) {
  line.add("cuda-graph", &options.cuda_graph,
           "Record an update as one CUDA graph and replay it, in the place of hundreds of launches",
           {.default_is = "true on a GPU"});
}

bool records_updates(const ComputeOptions& options, const Device& device) {
  const bool is_gpu = device.kind() == DeviceKind::cuda;
  check(is_gpu || !options.cuda_graph.value_or(false), "--cuda-graph: found --device {}, expected a GPU",
        device.name());
  return options.cuda_graph.value_or(is_gpu);
}

bool keeps_on_device(const ComputeOptions& options, const Device& device, std::size_t bytes) {
  const bool is_gpu = device.kind() == DeviceKind::cuda;
  check(is_gpu || !options.data_on_device.value_or(false),
        "--data-on-device: found --device {}, expected a GPU", device.name());
  return options.data_on_device.value_or(is_gpu && bytes <= device.memory().available() / 4);
}

Device open_device(ComputeOptions& options, const Precision& precision, const RankInfo& rank,
                   int ranks_on_my_cores) {
  if (options.threads == 0) options.threads = std::max(1, available_cores() / ranks_on_my_cores);
  // Where each rank sees one GPU alone (a launcher has hidden the others), that is its own, whatever its
  // number.
  std::string name = options.device;
  if (const int gpus = cuda_availability().count; gpus > 0 && (name == "auto" || name == "cuda"))
    name = fmt::format("cuda:{}", rank.local_rank % gpus);
  Device device = Device::parse(name, {.threads = static_cast<int>(options.threads)},
                                {.tf32 = precision.tf32, .deterministic = options.deterministic});
  if (kBuiltForGpus && options.device == "auto" && device.kind() == DeviceKind::cpu)
    options.no_gpu = cuda_availability().reason;
  // Of one rank; of several each has another, and the flags of all are the same.
  const bool is_own = name != options.device && rank.world > 1;
  options.device = is_own ? "cuda" : device.name();
  return device;
}

}  // namespace convoy

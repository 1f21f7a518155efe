#include "convoy/apps/flags/compute.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <variant>

#include "convoy/apps/common/text.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/library_versions.h"

namespace convoy {
namespace {

/// In a build with CUDA, Stream is a variant of two types.
constexpr bool kHasCuda = std::variant_size_v<Stream> != 1;

constexpr const char* kLevelVariable = "CONVOY_CPU_LEVEL";

/// A level, and how other libraries name the processors that have it.
struct Level {
  const char* name;
  /// Features that glibc ignores when it chooses libraries and its own functions.
  const char* without;
  const char* onednn;    // DNNL_MAX_CPU_ISA
  const char* openblas;  // OPENBLAS_CORETYPE
};
constexpr Level kLevels[] = {
    {"x86-64", "-SSE4_2,-AVX,-AVX2,-FMA,-AVX512F", "SSE41", "Prescott"},
    {"x86-64-v2", "-AVX,-AVX2,-FMA,-AVX512F", "SSE41", "Nehalem"},
    {"x86-64-v3", "-AVX512F,-AVX512BW,-AVX512CD,-AVX512DQ,-AVX512VL", "AVX2", "Haswell"},
    {"x86-64-v4", "", "AVX512_CORE", "SkylakeX"},
};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Returns GLIBC_TUNABLES, a list of NAME=VALUE with colons, with the features that glibc ignores.
std::string tunables_without(const char* features) {
  constexpr std::string_view kName = "glibc.cpu.hwcaps=";
  std::string result;
  for (const std::string& entry : split(variable("GLIBC_TUNABLES"), ':'))
    if (!entry.starts_with(kName)) result.append(result.empty() ? "" : ":").append(entry);
  if (*features != '\0') result.append(result.empty() ? "" : ":").append(kName).append(features);
  return result;
}

/// Replaces this process by the same program with the same arguments and the present environment.
[[noreturn]] void start_again() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error && !arguments.empty()) ::execv(program.c_str(), pointers.data());
  fail<DeviceError>("{}: the program cannot be started again: {}", kLevelVariable,
                    error ? error.message() : std::strerror(errno));
}

}  // namespace

std::vector<std::string> cpu_level_names() {
  std::vector<std::string> names;
  for (const Level& level : kLevels) names.emplace_back(level.name);
  return names;
}

void use_cpu_level(const std::string& level) {
  const auto* const found =
      std::ranges::find_if(kLevels, [&](const Level& candidate) { return candidate.name == level; });
  check(found != std::end(kLevels), "{}: found '{}', expected {}", kLevelVariable, level,
        fmt::join(cpu_level_names(), ", "));
  const std::pair<const char*, std::string> wanted[] = {
      {"GLIBC_TUNABLES", tunables_without(found->without)},
      {"DNNL_MAX_CPU_ISA", found->onednn},
      {"OPENBLAS_CORETYPE", found->openblas},
      {kLevelVariable, found->name},
  };
  const bool is_set =
      std::ranges::all_of(wanted, [](const auto& entry) { return variable(entry.first) == entry.second; });
  if (!is_set) {
    for (const auto& [name, value] : wanted) ::setenv(name, value.c_str(), 1);
    start_again();
  }
  check(
      cpu_level() == level,
      "--cpu-level (or {}) {}: this build has CPU kernels for {} on this processor, expected that level, or a build by "
      "the preset package and a processor that has the level",
      kLevelVariable, level, cpu_level());
}

void use_cpu_level_of_environment() {
  if (const std::string level = variable(kLevelVariable); !level.empty()) use_cpu_level(level);
}

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
  line.group("Precision and device", {.advanced = true});
  line.add("cuda-graph", &options.cuda_graph, "Capture and replay of the training step as one CUDA graph",
           {.default_text = "true on a GPU, unless ranks are threads"});
  line.add("deterministic", &options.deterministic, "Deterministic GPU algorithms only, without autotuning");
  line.add("plan-cache", &options.plan_cache,
           "GPU algorithm cache between runs: a file, auto (in the user's cache directory), or none",
           {.value = "FILE"});
  line.group("Precision and device");  // flags of which not all are advanced
}

void check_algorithm_flags(const ComputeOptions& options, const DeviceContext& device) {
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

bool use_cuda_graph(const ComputeOptions& options, const DeviceContext& device) {
  const bool is_gpu = device.kind() == DeviceKind::cuda;
  check(is_gpu || !options.cuda_graph.value_or(false), "--cuda-graph: found --device {}, expected a GPU",
        device.name());
  return options.cuda_graph.value_or(is_gpu);
}

bool keep_data_on_device(const ComputeOptions& options, const DeviceContext& device,
                         const data::ImageSet& set) {
  const bool is_gpu = device.kind() == DeviceKind::cuda;
  check(!set.source || !options.data_on_device.value_or(false),
        "--data-on-device: found images in shards, expected a data set in memory");
  check(is_gpu || !options.data_on_device.value_or(false),
        "--data-on-device: found --device {}, expected a GPU", device.name());
  return options.data_on_device.value_or(is_gpu && !set.source &&
                                         set.images.bytes() <= device.memory().available() / 4);
}

DeviceContext open_device(ComputeOptions& options, const Precision& precision, const dist::RankInfo& rank,
                          int ranks_on_my_cores) {
  if (options.threads == 0) options.threads = std::max(1, available_cores() / ranks_on_my_cores);
  // If the launcher made one GPU visible to each rank, the modulus selects that GPU on every rank.
  std::string name = options.device;
  if (const int gpus = cuda_availability().count; gpus > 0 && (name == "auto" || name == "cuda"))
    name = fmt::format("cuda:{}", rank.local_rank % gpus);
  const DeviceContext device =
      DeviceContext::create(Device::parse(name), {.threads = static_cast<int>(options.threads)},
                            {.tf32 = precision.tf32, .deterministic = options.deterministic});
  if (kHasCuda && options.device == "auto" && device.kind() == DeviceKind::cpu)
    options.no_gpu = cuda_availability().reason;
  // NCCL's guide warns that launches of graphs with collectives may wait for each other if one process has several GPUs.
  if (rank.source == "threads" && rank.world_size > 1 && device.kind() == DeviceKind::cuda)
    options.cuda_graph = options.cuda_graph.value_or(false);
  // The resolved flag must be equal on all ranks, so it omits the index of a GPU that depends on the rank.
  const bool depends_on_rank = name != options.device && rank.world_size > 1;
  options.device = depends_on_rank ? "cuda" : device.name();
  return device;
}

}  // namespace convoy

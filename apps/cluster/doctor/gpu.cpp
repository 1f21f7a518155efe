#include "convoy/apps/cluster/doctor/gpu.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/cuda/facts.h"

namespace convoy::doctor {
namespace {

/// Returns the first word of a file, or "".
std::string first_word_of(const std::filesystem::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

/// Returns the number of NVIDIA display and 3D controllers on the PCI bus, which needs no driver.
int installed_gpus() {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/pci/devices", ignored))
    if (first_word_of(entry.path() / "vendor") == "0x10de" &&
        first_word_of(entry.path() / "class").starts_with("0x03"))
      ++count;
  return count;
}

}  // namespace

GpuRankFacts examine_gpus() {
  const CudaFacts cuda = cuda_facts();
  GpuRankFacts facts{.is_built_in = cuda.is_built_in,
                     .needs = cuda.needs,
                     .supports = cuda.supports,
                     .reason = cuda.reason,
                     .installed = installed_gpus()};
  for (const GpuFacts& gpu : cuda.gpus) {
    facts.names.push_back(fmt::format("{}, sm_{}", gpu.name, gpu.compute_capability));
    facts.uuids.push_back(gpu.uuid);
  }
  return facts;
}

std::optional<DeviceContext> open_gpu(const std::string& device, const dist::RankInfo& rank,
                                      GpuRankFacts& facts) {
  if (device == "cpu" || facts.uuids.empty()) return std::nullopt;
  const int index = rank.local_rank % static_cast<int>(facts.uuids.size());
  try {
    DeviceContext gpu = Device::cuda(index);
    facts.free_bytes = gpu.memory().available();
    facts.bytes = cuda_facts().gpus[static_cast<std::size_t>(index)].bytes;
    facts.index = index;
    return gpu;
  } catch (const DeviceError& error) {
    facts.reason = error.what();
    return std::nullopt;
  }
}

std::string visible_devices_problem(const std::string& value, int installed) {
  if (value.empty()) return "is empty";
  std::istringstream parts(value);
  for (std::string part; std::getline(parts, part, ',');) {
    if (part.starts_with("GPU-") || part.starts_with("MIG-")) continue;
    const bool is_number =
        !part.empty() && part.size() < 5 && part.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number) return fmt::format("has '{}', expected a GPU index, GPU-… or MIG-…", part);
    if (installed > 0 && std::stoi(part) >= installed)
      return fmt::format("has {}, but the GPUs are 0 to {}", part, installed - 1);
  }
  return "";
}

}  // namespace convoy::doctor

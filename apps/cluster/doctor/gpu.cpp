// GPUs: drivers, visible devices, and their assignment to ranks.
#include <filesystem>
#include <fstream>
#include <set>

#include "convoy/apps/cluster/doctor/doctor.h"
#include "convoy/apps/common/text.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/cuda/facts.h"
#include "convoy/kernels/runtime/memory/memory.h"

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

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

Finding device_error(std::string found, std::string expected, std::string fix) {
  return {.grade = Grade::error,
          .code = ExitCode::device,
          .found = std::move(found),
          .expected = std::move(expected),
          .fix = std::move(fix)};
}

/// Returns what is wrong with the CUDA_VISIBLE_DEVICES of a rank, or "".
std::string visible_problem_of(const RankFacts& rank) {
  const auto visible = rank.variables.find(kVisible);
  return visible == rank.variables.end() ? "" : visible_devices_problem(visible->second, rank.gpu.installed);
}

/// Checks a rank without a GPU, which may be the result of a problem.
void check_rank_without_gpu(const RankFacts& rank, const std::string& device, Findings& findings) {
  const GpuRankFacts& gpu = rank.gpu;
  const std::string who = fmt::format("rank {} on {}", rank.rank, rank.host);
  if (gpu.installed == 0 && device != "cuda") return;  // the host has no GPU, and none is required
  if (!gpu.is_built_in) {
    Finding finding = device_error(fmt::format("{}: {}", who, gpu.reason), "a build with CUDA",
                                   "cmake --preset cuda && cmake --build --preset cuda");
    if (device != "cuda") finding.grade = Grade::warning;
    findings.push_back(std::move(finding));
    return;
  }
  const std::string problem = visible_problem_of(rank);
  if (problem.empty()) {
    findings.push_back(device_error(
        fmt::format("{}: {}", who, gpu.reason), "a usable GPU",
        gpu.supports.empty()
            ? "install the NVIDIA driver (apt-get install nvidia-driver; docker run --gpus all), and check it with "
              "nvidia-smi"
            : fmt::format("check nvidia-smi, and install a driver for CUDA {} or later", gpu.needs)));
    return;
  }
  Finding finding =
      device_error(fmt::format("{} sees no GPU: {} {}", who, kVisible, problem),
                   gpu.installed > 0 ? fmt::format("GPU indices from 0 to {}", gpu.installed - 1)
                                     : std::string("GPU indices"),
                   fmt::format("unset {}", kVisible));
  if (rank.variables.at(kVisible).empty() && device != "cuda")
    finding.grade = Grade::warning;  // may be intended
  findings.push_back(std::move(finding));
}

/// Checks a rank with a GPU.
void check_rank_with_gpu(const RankFacts& rank, Findings& findings) {
  const GpuRankFacts& gpu = rank.gpu;
  const std::string who = fmt::format("rank {} on {}", rank.rank, rank.host);
  if (const std::string problem = visible_problem_of(rank); !problem.empty())
    findings.push_back(
        {.found = fmt::format("{}: {} {}, and CUDA ignores the rest of the list", who, kVisible, problem),
         .expected = "comma-separated GPU indices",
         .fix = fmt::format("export {}=0,1 or unset it", kVisible)});
  if (gpu.bytes > 0 && gpu.free_bytes < gpu.bytes / 2)
    findings.push_back(
        {.found = fmt::format("{}: GPU {} has {} of {} of its memory free", who, gpu.index,
                              format_bytes(gpu.free_bytes), format_bytes(gpu.bytes)),
         .expected = "a GPU that no other job uses",
         .fix = "end the processes that nvidia-smi lists, or select other GPUs with CUDA_VISIBLE_DEVICES"});
}

/// Checks that the ranks of one host have distinct GPUs.
void check_sharing(const Ranks& host, Findings& findings) {
  std::set<std::string> distinct;
  Ranks on_gpu;
  for (const RankFacts* rank : host)
    if (rank->gpu.index >= 0) {
      distinct.insert(rank->gpu.uuids[static_cast<std::size_t>(rank->gpu.index)]);
      on_gpu.push_back(rank);
    }
  if (distinct.size() == on_gpu.size()) return;
  const std::string& name = host.front()->host;
  findings.push_back(device_error(
      fmt::format("{} on {} share {} {}", rank_list(on_gpu), name, distinct.size(),
                  distinct.size() == 1 ? "GPU" : "GPUs"),
      "one GPU per rank",
      fmt::format(
          "start {} {} there (mpirun --host {}:{}) or use --device cpu; --allow-shared-gpu is for tests",
          distinct.size(), distinct.size() == 1 ? "rank" : "ranks", host.front()->host_name,
          distinct.size())));
}

}  // namespace

GpuRankFacts examine_gpus() {
  const CudaFacts cuda = cuda_facts();
  GpuRankFacts facts{.is_built_in = cuda.is_built_in,
                     .needs = cuda.needs,
                     .supports = cuda.supports,
                     .code = cuda.code,
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
  for (const std::string& part : split(value)) {
    if (part.starts_with("GPU-") || part.starts_with("MIG-")) continue;
    const bool is_number =
        !part.empty() && part.size() < 5 && part.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number) return fmt::format("has '{}', expected a GPU index, GPU-… or MIG-…", part);
    if (installed > 0 && std::stoi(part) >= installed)
      return fmt::format("has {}, but the GPUs are 0 to {}", part, installed - 1);
  }
  return "";
}

Findings check_gpus(const Examination& examination) {
  Findings findings;
  if (examination.device == "cpu") return findings;
  Ranks with, without;
  std::set<std::string> models;
  for (const RankFacts& rank : examination.ranks) {
    if (rank.gpu.index >= 0) {
      with.push_back(&rank);
      models.insert(rank.gpu.names[static_cast<std::size_t>(rank.gpu.index)]);
      check_rank_with_gpu(rank, findings);
    } else {
      without.push_back(&rank);
      check_rank_without_gpu(rank, examination.device, findings);
    }
  }
  if (!with.empty() && !without.empty())
    findings.push_back(device_error(
        fmt::format("{} would compute on GPUs, and {} on the CPU", rank_list(with), rank_list(without)),
        "the same kind of device on all ranks", "use --device cpu, or start ranks only on hosts with GPUs"));
  if (models.size() > 1)
    findings.push_back(
        {.found = fmt::format("GPUs of {} models: {}, {}", models.size(), *models.begin(), *models.rbegin()),
         .expected = "one model: every step waits for the slowest GPU, and its memory is the limit",
         .fix = "select hosts with GPUs of the same model, or such GPUs with CUDA_VISIBLE_DEVICES"});
  if (!examination.allow_shared_gpu)
    for (const auto& [node, host] : by_host(examination.ranks)) check_sharing(host, findings);
  return findings;
}

}  // namespace convoy::doctor

// GPUs: drivers, which are visible, and whose is which.
#include <algorithm>
#include <set>

#include "apps/doctor_checks.h"
#include "apps/doctor_gpu.h"
#include "kernels/runtime/check.h"
#include "kernels/runtime/memory.h"

namespace convoy::doctor {
namespace {

using Ranks = std::vector<const RankFacts*>;

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

Finding device_error(std::string found, std::string expected, std::string fix) {
  return {.grade = Grade::error,
          .code = ExitCode::device,
          .found = std::move(found),
          .expected = std::move(expected),
          .fix = std::move(fix)};
}

std::string driver_fix(const GpuRankFacts& gpu) {
  if (gpu.supports.empty())
    return "install NVIDIA's driver (apt-get install nvidia-driver; docker run --gpus all), until nvidia-smi "
           "shows it";
  return fmt::format("nvidia-smi, and a driver for CUDA {} or later", gpu.needs);
}

/// A rank that uses no GPU though it might, or should.
void check_none(const RankFacts& rank, const std::string& device, Findings& findings) {
  const GpuRankFacts& gpu = rank.gpu;
  const std::string who = fmt::format("rank {} on {}", rank.rank, rank.host);
  if (gpu.installed == 0 && device != "cuda") return;  // there is none, and nobody asks for one
  if (!gpu.is_built_in) {
    Finding finding = device_error(fmt::format("{}: {}", who, gpu.reason), "a build with CUDA",
                                   "cmake --workflow --preset cuda");
    if (device != "cuda") finding.grade = Grade::warning;
    findings.push_back(std::move(finding));
    return;
  }
  const auto visible = rank.variables.find(kVisible);
  const std::string problem =
      visible == rank.variables.end() ? "" : visible_devices_problem(visible->second, gpu.installed);
  if (problem.empty()) {
    findings.push_back(
        device_error(fmt::format("{}: {}", who, gpu.reason), "a GPU that can be used", driver_fix(gpu)));
    return;
  }
  Finding finding = device_error(
      fmt::format("{} sees no GPU: {} {}", who, kVisible, problem),
      gpu.installed > 0 ? fmt::format("some of 0 to {}", gpu.installed - 1) : std::string("numbers of GPUs"),
      fmt::format("unset {}", kVisible));
  if (visible->second.empty() && device != "cuda") finding.grade = Grade::warning;  // on purpose, perhaps
  findings.push_back(std::move(finding));
}

void check_one(const RankFacts& rank, Findings& findings) {
  const GpuRankFacts& gpu = rank.gpu;
  const std::string who = fmt::format("rank {} on {}", rank.rank, rank.host);
  const auto visible = rank.variables.find(kVisible);
  if (visible != rank.variables.end()) {
    const std::string problem = visible_devices_problem(visible->second, gpu.installed);
    if (!problem.empty())
      findings.push_back(
          {.found = fmt::format("{}: {} {}, which hides all that follow", who, kVisible, problem),
           .expected = "numbers of GPUs, between commas",
           .fix = fmt::format("export {}=0,1, or unset it", kVisible)});
  }
  if (gpu.bytes > 0 && gpu.free_bytes < gpu.bytes / 2)
    findings.push_back(
        {.found = fmt::format("{}: GPU {} has {} of {} of its memory free", who, gpu.index,
                              format_bytes(gpu.free_bytes), format_bytes(gpu.bytes)),
         .expected = "a GPU for this job alone",
         .fix = "nvidia-smi lists who uses it: end them, or choose others by CUDA_VISIBLE_DEVICES"});
}

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
      fmt::format("{} on {} have {} {} between them", names_of(on_gpu), name, distinct.size(),
                  distinct.size() == 1 ? "GPU" : "GPUs"),
      "a GPU of its own for each rank",
      fmt::format("{} {} on that host: mpirun --host {}:{}; or --device cpu; --allow-shared-gpu is for tests",
                  distinct.size(), distinct.size() == 1 ? "rank" : "ranks", host.front()->host_name,
                  distinct.size())));
}

}  // namespace

Findings check_gpus(const Examination& examination) {
  Findings findings;
  if (examination.device == "cpu") return findings;
  Ranks with, without;
  std::set<std::string> models;
  for (const RankFacts& rank : examination.ranks) {
    if (rank.gpu.index >= 0) {
      with.push_back(&rank);
      models.insert(rank.gpu.names[static_cast<std::size_t>(rank.gpu.index)]);
      check_one(rank, findings);
    } else {
      without.push_back(&rank);
      check_none(rank, examination.device, findings);
    }
  }
  if (!with.empty() && !without.empty())
    findings.push_back(device_error(
        fmt::format("{} would compute on GPUs, and {} on the CPU", names_of(with), names_of(without)),
        "one kind of device", "--device cpu, or ranks on hosts with GPUs alone"));
  if (models.size() > 1)
    findings.push_back(
        {.found = fmt::format("GPUs of {} kinds: {}, {}", models.size(), *models.begin(), *models.rbegin()),
         .expected = "one kind: every step waits for the slowest, and its memory is the limit",
         .fix = "choose hosts or, by CUDA_VISIBLE_DEVICES, GPUs that are alike"});
  if (!examination.allow_shared_gpu)
    for (const Ranks& host : by_host(examination.ranks))
      if (!host.empty()) check_sharing(host, findings);
  return findings;
}

}  // namespace convoy::doctor

#include "convoy/apps/cluster/doctor/host.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "convoy/apps/cluster/doctor/network.h"
#include "convoy/apps/common/machine.h"
#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/version.h"

namespace convoy::doctor {
namespace {

/// Returns the first line of a file, or "" if it cannot be read.
std::string line_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// Returns the CPU quota from the files of control groups version 2 or 1.
double quota_of_this_container() {
  if (const std::string text = line_of("/sys/fs/cgroup/cpu.max"); !text.empty()) return parse_cpu_quota(text);
  const std::string quota = line_of("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  return parse_cpu_quota(quota + " " + line_of("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
}

std::uint64_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  getrlimit(resource, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<std::uint64_t>::max() : limit.rlim_cur;
}

bool has_entries(const std::filesystem::path& directory) {
  std::error_code ignored;
  return std::filesystem::directory_iterator(directory, ignored) != std::filesystem::directory_iterator();
}

LimitFacts limits_of_this_process() {
  LimitFacts limits{.open_files = limit_of(RLIMIT_NOFILE),
                    .locked_bytes = limit_of(RLIMIT_MEMLOCK),
                    .has_rdma = has_entries("/sys/class/infiniband")};
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    limits.shm_bytes = shm.f_blocks * shm.f_frsize;
    limits.shm_free = shm.f_bavail * shm.f_frsize;
  }
  return limits;
}

/// Returns the variables that affect launchers, communication libraries and OpenMP.
dist::Variables select_variables(const dist::Variables& variables) {
  constexpr const char* kNames[] = {
      "RANK",         "WORLD_SIZE",           "LOCAL_RANK",           "LOCAL_WORLD_SIZE",
      "MASTER_ADDR",  "MASTER_PORT",          "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
      "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID",         "PMI_RANK",
      "PMI_SIZE",     "CUDA_VISIBLE_DEVICES", "CONVOY_INTERFACE"};
  dist::Variables found;
  if (const auto secret = variables.find(dist::kSecretVariable);
      secret != variables.end() && !secret->second.empty())
    found.emplace(dist::kSecretVariable, "set");  // without its value
  for (const auto& [name, value] : variables)
    if (std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
        name.starts_with("MLP_") || name.starts_with("OMP_") || name.starts_with("NCCL_"))
      found.emplace(name, value);
  return found;
}

}  // namespace

double parse_cpu_quota(const std::string& text) {
  double quota = 0, period = 0;
  std::istringstream in(text);
  return in >> quota >> period && quota > 0 && period > 0 ? quota / period : 0;
}

std::string format_cores(const std::vector<int>& cores) {
  std::string text;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? std::to_string(cores[i]) : fmt::format("{}-{}", cores[i], cores[last]);
    i = last + 1;
  }
  return text;
}

double measure_copy_rate() {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  constexpr std::chrono::milliseconds kDuration(250);  // long enough for at least one undisturbed copy
  const std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes);
  double best = 0;
  const auto end = std::chrono::steady_clock::now() + kDuration;
  while (best == 0 || std::chrono::steady_clock::now() < end) {
    const auto begin = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), kBytes);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    // Reading the last byte keeps the compiler from removing the copy.
    if (to.back() == 1) best = std::max(best, static_cast<double>(kBytes) / std::max(took.count(), 1e-9));
  }
  return best;
}

RankFacts examine_host(const dist::Variables& variables) {
  RankFacts facts;
  const Machine machine = this_machine();
  const dist::HostId host = dist::this_host();
  facts.host_name = facts.host = host.name;
  facts.machine = host.boot;
  facts.system = machine.system;
  facts.process = getpid();
  facts.parent = line_of(fmt::format("/proc/{}/comm", getppid()));
  facts.program = io::hash_file("/proc/self/exe");
  facts.version = kVersion;
  facts.libraries = machine.libraries;
  facts.variables = select_variables(variables);
  facts.cpu = {.processor = machine.processor,
               .machine_cores = machine.online_cores,
               .cores = machine.cores,
               .quota = quota_of_this_container(),
               .memory_bytes = machine.memory_bytes,
               .memory_available = machine.memory_available};
  facts.limits = limits_of_this_process();
  facts.interfaces = list_addresses();
  facts.interface_names = list_interfaces();
  return facts;
}

}  // namespace convoy::doctor

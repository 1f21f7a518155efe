// The process and its host: cores, limits and memory.
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "convoy/apps/cluster/doctor/doctor.h"
#include "convoy/apps/common/machine.h"
#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/comm/core/all_reduce.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/memory/memory.h"
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

LimitFacts limits_of_this_process() {
  std::error_code ignored;
  const std::filesystem::directory_iterator adapters("/sys/class/infiniband", ignored), end;
  LimitFacts limits{.open_files = limit_of(RLIMIT_NOFILE),
                    .locked_bytes = limit_of(RLIMIT_MEMLOCK),
                    .has_rdma = adapters != end};
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    limits.shm_bytes = shm.f_blocks * shm.f_frsize;
    limits.shm_free = shm.f_bavail * shm.f_frsize;
  }
  return limits;
}

/// Returns the variables that affect launchers and communication libraries.
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
    if (std::ranges::find(kNames, name) != std::end(kNames) || name.starts_with("MLP_") ||
        name.starts_with("NCCL_"))
      found.emplace(name, value);
  return found;
}

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

bool is_by_mpi(const RankFacts& facts) { return facts.met_by == "mpi"; }

void check_cores(const Ranks& host, Findings& findings) {
  const RankFacts& first = *host.front();
  std::map<std::vector<int>, Ranks> by_cores;
  std::set<int> all_cores;
  for (const RankFacts* rank : host) {
    by_cores[rank->cpu.cores].push_back(rank);
    all_cores.insert(rank->cpu.cores.begin(), rank->cpu.cores.end());
  }
  const int ranks = static_cast<int>(host.size());
  if (first.cpu.machine_cores < ranks) {
    findings.push_back(
        {.found =
             fmt::format("{} ranks on {}, which has {} cores", ranks, first.host, first.cpu.machine_cores),
         .expected = "at least one core per rank",
         .fix = fmt::format("start {} ranks on that host: mpirun --host {}:{}", first.cpu.machine_cores,
                            first.host_name, first.cpu.machine_cores)});
  } else {
    for (const auto& [cores, bound] : by_cores) {
      if (cores.empty() || bound.size() <= cores.size()) continue;
      findings.push_back(
          {.found = fmt::format("{} on {} may run only on {} {} of {}", rank_list(bound), first.host,
                                cores.size() == 1 ? "core" : "cores", format_cores(cores),
                                first.cpu.machine_cores),
           .expected = "at least one core per rank",
           .fix =
               is_by_mpi(first)
                   ? fmt::format("mpirun --bind-to none, or --map-by slot:PE={} --bind-to core",
                                 std::max(1, first.cpu.machine_cores / ranks))
                   : std::string("start them without taskset, numactl or a cpuset (srun: --cpu-bind=none, or "
                                 "--cpus-per-task)")});
    }
  }
  const double quota = first.cpu.quota;
  if (quota > 0 && quota < static_cast<double>(all_cores.size()))
    findings.push_back(
        {.found = fmt::format("{} sees {} cores but has a CPU quota of {:.1f} cores", first.host,
                              all_cores.size(), quota),
         .expected = "no more threads than the quota allows, since excess threads slow each other down",
         .fix = fmt::format(
             "use --threads {}, or raise the limit (docker --cpus; Kubernetes: resources.limits.cpu)",
             std::max(1, static_cast<int>(quota) / ranks))});
}

void check_limits(const Ranks& host, Findings& findings) {
  const RankFacts& first = *host.front();
  const LimitFacts& limits = first.limits;
  // Rank 0 has a connection to each rank, and each communicator those of its graph.
  const std::uint64_t files = 64 + static_cast<std::uint64_t>(first.world_size) +
                              8 * dist::AllReduceOptions().peers(0, first.world_size).size();
  if (limits.open_files < files)
    findings.push_back(
        {.found = fmt::format("ranks on {} may open {} files (ulimit -n)", first.host, limits.open_files),
         .expected = fmt::format("at least {}: every rank has connections to other ranks", files),
         .fix = fmt::format("ulimit -n {}, before mpirun or in the job script",
                            std::max<std::uint64_t>(4096, files))});
  if (limits.has_rdma && limits.locked_bytes < 1024 * kMiB)
    findings.push_back(
        {.found =
             fmt::format("ranks on {} may lock {} of memory (ulimit -l), but the host has an RDMA network",
                         first.host, format_bytes(limits.locked_bytes)),
         .expected = "no limit, since RDMA transfers need locked memory",
         .fix =
             "ulimit -l unlimited (memlock in /etc/security/limits.conf; docker run --ulimit memlock=-1)"});
}

void check_shared_memory(const Ranks& host, Findings& findings) {
  const RankFacts& first = *host.front();
  const auto on_gpu = std::ranges::count_if(host, [](const RankFacts* rank) { return rank->gpu.index >= 0; });
  const char* needs = nullptr;
  std::uint64_t bytes = 0;
  if (on_gpu >= 2) {
    needs = "NCCL between GPUs without direct access to each other";
    bytes = 1024 * kMiB;
  } else if (host.size() >= 2 && is_by_mpi(first)) {
    needs = "Open MPI between the ranks of a host";
    bytes = 16 * kMiB * host.size();
  }
  if (needs == nullptr || first.limits.shm_free >= bytes) return;
  findings.push_back(
      {.found = fmt::format("/dev/shm of {} has {} free", first.host, format_bytes(first.limits.shm_free)),
       .expected = fmt::format("at least {} for {}; --comm shm does not use it", format_bytes(bytes), needs),
       .fix = "mount -o remount,size=8G /dev/shm (docker run --shm-size=8g; Kubernetes: an emptyDir with "
              "medium: Memory at /dev/shm)"});
}

void check_memory(const Ranks& host, Findings& findings) {
  const RankFacts& first = *host.front();
  const std::uint64_t minimum = 512 * kMiB * host.size();
  if (first.cpu.memory_available >= minimum) return;
  findings.push_back(
      {.found = fmt::format("{} has {} of {} of memory available", first.host,
                            format_bytes(first.cpu.memory_available), format_bytes(first.cpu.memory_bytes)),
       .expected = fmt::format("at least {} for {} ranks", format_bytes(minimum), host.size()),
       .fix = "end other processes on that host (top -o %MEM), or start fewer ranks there"});
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

Findings check_hosts(const Examination& examination) {
  Findings findings;
  for (const auto& [node, host] : by_host(examination.ranks)) {
    check_cores(host, findings);
    check_limits(host, findings);
    check_shared_memory(host, findings);
    check_memory(host, findings);
  }
  return findings;
}

}  // namespace convoy::doctor

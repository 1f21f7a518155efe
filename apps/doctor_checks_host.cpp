// Cores, threads, limits and memory of each host.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "apps/doctor_checks.h"
#include "apps/doctor_host.h"
#include "kernels/runtime/check.h"
#include "kernels/runtime/memory.h"

namespace convoy::doctor {
namespace {

using Ranks = std::vector<const RankFacts*>;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

int threads_of(const std::string& text) {
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  return error == std::errc() && end == text.data() + text.size() ? threads : 0;
}

bool is_by_mpi(const RankFacts& facts) { return facts.met_by == "mpi"; }

void check_cores(const Ranks& host, Findings& findings) {
  const RankFacts& first = *host.front();
  std::map<std::vector<int>, Ranks> by_cores;
  std::set<int> together;
  for (const RankFacts* rank : host) {
    by_cores[rank->cpu.cores].push_back(rank);
    together.insert(rank->cpu.cores.begin(), rank->cpu.cores.end());
  }
  const int ranks = static_cast<int>(host.size());
  if (first.cpu.machine_cores < ranks) {
    findings.push_back(
        {.found =
             fmt::format("{} ranks on {}, which has {} cores", ranks, first.host, first.cpu.machine_cores),
         .expected = "a core a rank, or more",
         .fix = fmt::format("{} ranks on that host: mpirun --host {}:{}", first.cpu.machine_cores,
                            first.host_name, first.cpu.machine_cores)});
  } else {
    for (const auto& [cores, bound] : by_cores) {
      if (cores.empty() || bound.size() <= cores.size()) continue;
      findings.push_back(
          {.found = fmt::format("{} on {} may all run on {} {} alone, of its {}", names_of(bound), first.host,
                                cores.size() == 1 ? "core" : "cores", text_of_cores(cores),
                                first.cpu.machine_cores),
           .expected = "a core a rank, or more",
           .fix =
               is_by_mpi(first)
                   ? fmt::format("mpirun --bind-to none, or --map-by slot:PE={} --bind-to core",
                                 std::max(1, first.cpu.machine_cores / ranks))
                   : std::string("start them without taskset, numactl or the cpuset that binds them (srun: "
                                 "--cpu-bind=none, or --cpus-per-task)")});
    }
  }
  const double quota = first.cpu.quota;
  if (quota > 0 && quota < static_cast<double>(together.size()))
    findings.push_back(
        {.found = fmt::format("{} sees {} cores and may use {:.1f} cores' worth of time", first.host,
                              together.size(), quota),
         .expected = "as many threads as the container has time for; more of them wait for each other",
         .fix = fmt::format(
             "--threads {}, or a higher limit (docker --cpus, in Kubernetes resources.limits.cpu)",
             std::max(1, static_cast<int>(quota) / ranks))});
}

void check_threads(const Ranks& host, Findings& findings) {
  constexpr const char* kFix =
      "unset OMP_NUM_THREADS; convoy's programs take --threads N, else a rank's part of its cores";
  const RankFacts& first = *host.front();
  const std::string of_first = variable_of(first, "OMP_NUM_THREADS");
  for (const RankFacts* rank : host) {
    const std::string text = variable_of(*rank, "OMP_NUM_THREADS");
    const std::string who = fmt::format("rank {} on {} has OMP_NUM_THREADS={}", rank->rank, rank->host, text);
    if (text != of_first)
      findings.push_back(
          {.found = fmt::format("{}, rank {} has {}", who, first.rank, of_first.empty() ? "none" : of_first),
           .expected = "one value for the ranks of a host",
           .fix = kFix});
    if (text.empty()) continue;
    const std::string first_level = text.substr(0, text.find(','));  // nested teams are listed after it
    const int threads = threads_of(first_level);
    if (threads < 1) {
      findings.push_back({.found = who, .expected = "a whole number of 1 or more", .fix = kFix});
    } else if (!rank->cpu.cores.empty() && threads > static_cast<int>(rank->cpu.cores.size())) {
      findings.push_back(
          {.found = fmt::format(
               "{}, and {} to run on", who,
               rank->cpu.cores.size() == 1 ? "one core" : fmt::format("{} cores", rank->cpu.cores.size())),
           .expected = "as many threads as cores, or fewer",
           .fix = kFix});
    }
  }
}

void check_limits(const Ranks& host, Findings& findings) {
  const RankFacts& first = *host.front();
  const LimitFacts& limits = first.limits;
  const std::uint64_t files = 64 + 8 * static_cast<std::uint64_t>(first.world);
  if (limits.open_files < files)
    findings.push_back(
        {.found = fmt::format("ranks on {} may open {} files (ulimit -n)", first.host, limits.open_files),
         .expected = fmt::format("{} or more: every rank holds connections to others", files),
         .fix = fmt::format("ulimit -n {}, before mpirun or in the job's script",
                            std::max<std::uint64_t>(4096, files))});
  if (limits.has_rdma && limits.locked_bytes < 1024 * kMiB)
    findings.push_back(
        {.found = fmt::format("ranks on {} may lock {} (ulimit -l), and it has InfiniBand or its like",
                              first.host, format_bytes(limits.locked_bytes)),
         .expected = "no limit: what goes over such a network is locked in memory",
         .fix =
             "ulimit -l unlimited (memlock in /etc/security/limits.conf; docker run --ulimit memlock=-1)"});
}

void check_shared_memory(const Ranks& host, Findings& findings) {
  const RankFacts& first = *host.front();
  const auto on_gpu =
      std::count_if(host.begin(), host.end(), [](const RankFacts* rank) { return rank->gpu.index >= 0; });
  const char* needs = nullptr;
  std::uint64_t bytes = 0;
  if (on_gpu >= 2) {
    needs = "NCCL, between GPUs that do not reach each other directly";
    bytes = 1024 * kMiB;
  } else if (host.size() >= 2 && is_by_mpi(first)) {
    needs = "Open MPI, between the ranks of a host";
    bytes = 16 * kMiB * host.size();
  }
  if (needs == nullptr || first.limits.shm_free >= bytes) return;
  findings.push_back(
      {.found = fmt::format("/dev/shm of {} has {} free", first.host, format_bytes(first.limits.shm_free)),
       .expected = fmt::format("{} for {}; --comm shm needs none of it", format_bytes(bytes), needs),
       .fix = "mount -o remount,size=8G /dev/shm (docker run --shm-size=8g; in Kubernetes an emptyDir with "
              "medium: "
              "Memory at /dev/shm)"});
}

void check_memory(const Ranks& host, Findings& findings) {
  const RankFacts& first = *host.front();
  const std::uint64_t least = 512 * kMiB * host.size();
  if (first.cpu.memory_available >= least) return;
  findings.push_back(
      {.found = fmt::format("{} has {} of {} of its memory left", first.host,
                            format_bytes(first.cpu.memory_available), format_bytes(first.cpu.memory_bytes)),
       .expected = fmt::format("{} for {} ranks, or more", format_bytes(least), host.size()),
       .fix = "end what else runs there (top -o %MEM), or start fewer ranks on it"});
}

/// All ranks wait for the slowest in every step.
void check_speed(const std::vector<RankFacts>& ranks, Findings& findings) {
  constexpr double kSlow = 4;  // times slower than the median: no matter of chance
  std::vector<double> rates;
  for (const RankFacts& rank : ranks) rates.push_back(rank.cpu.copy_rate);
  std::nth_element(rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2), rates.end());
  const double median = rates[rates.size() / 2];
  for (const Ranks& host : by_host(ranks))
    if (!host.empty() && static_cast<int>(host.size()) > host.front()->cpu.machine_cores)
      return;  // then ranks wait for a core
  for (const RankFacts& rank : ranks)
    if (rank.cpu.copy_rate * kSlow < median)
      findings.push_back(
          {.found = fmt::format("rank {} on {} copies {:.1f} GB/s in memory, the median rank {:.1f}",
                                rank.rank, rank.host, rank.cpu.copy_rate / 1e9, median / 1e9),
           .expected = "about the same on all: every step waits for the slowest",
           .fix = fmt::format("look at {} with top: what else runs there, on cores {}?", rank.host,
                              text_of_cores(rank.cpu.cores))});
}

}  // namespace

Findings check_hosts(const Examination& examination) {
  Findings findings;
  for (const Ranks& host : by_host(examination.ranks)) {
    if (host.empty()) continue;
    check_cores(host, findings);
    check_threads(host, findings);
    check_limits(host, findings);
    check_shared_memory(host, findings);
    check_memory(host, findings);
  }
  check_speed(examination.ranks, findings);
  return findings;
}

}  // namespace convoy::doctor

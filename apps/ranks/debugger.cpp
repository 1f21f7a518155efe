#include "convoy/apps/ranks/debugger.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "convoy/apps/ranks/cluster.h"
#include "convoy/apps/ranks/job.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

/// Returns the id of the process that traces this one, or 0.
int tracer() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "TracerPid:") {
      int process = 0;
      status >> process;
      return process;
    }
  return 0;
}

void await_debugger(const char* program, const dist::RankInfo& info) {
  std::string scope;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  const std::string who = fmt::format("{}: rank {} on {}", program, info.rank, info.host);
  fmt::print(stderr, "{} waits for a debugger: gdb -p {}\n", who, getpid());
  if (const std::string obstacle = debugger_obstacle(scope, geteuid() == 0); !obstacle.empty())
    fmt::print(stderr, "{}: {}\n", who, obstacle);
  while (tracer() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fmt::print(stderr, "{} continues with process {} attached\n", who, tracer());
}

}  // namespace

std::string debugger_obstacle(const std::string& scope, bool is_root) {
  if (scope.empty() || scope == "0") return "";
  if (scope == "3")
    return "no process may be traced (kernel.yama.ptrace_scope is 3, which only a reboot resets)";
  if (is_root) return "";
  return fmt::format(
      "only root may trace it (kernel.yama.ptrace_scope is {}): sudo gdb, or sudo sysctl "
      "kernel.yama.ptrace_scope=0",
      scope);
}

void wait_for_debugger(const char* program, std::optional<std::int64_t> debugged,
                       dist::Rendezvous& rendezvous, const std::string& comm) {
  const dist::RankInfo& info = rendezvous.info();
  const std::string local = debugged ? std::to_string(*debugged) : "none";
  const std::vector<std::string> all = rendezvous.all_gather(local);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    check(all[rank] == all.front(),
          "--wait-debugger: rank {} has {}, rank 0 has {}; expected the same on all", rank, all[rank],
          all.front());
  if (!debugged) return;
  check(*debugged >= 0 && *debugged < info.world_size,
        "--wait-debugger {}: found {} {}, expected a rank from 0 to {}", *debugged, info.world_size,
        info.world_size == 1 ? "rank" : "ranks", info.world_size - 1);
  const auto await_local = [&] {
    if (*debugged == info.rank) await_debugger(program, info);
  };
  if (info.world_size == 1) return await_local();
  const auto plane = cluster().connect(rendezvous, {});
  const auto communicator = make_cpu_communicator(cpu_communicator_kind(comm, info), rendezvous,
                                                  {.deadline_floor = plane->deadline_floor()});
  {
    const dist::PhaseScope phase(plane.get(), dist::Phase::debugger);
    await_local();
  }
  communicator->barrier();
  communicator->finish();
}

}  // namespace convoy

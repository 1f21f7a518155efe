#include "apps/debugger.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "apps/job.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

/// The process that traces this one; 0 where none does.
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

void await_debugger(const char* program, const RankInfo& info) {
  std::string scope;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  const std::string who = fmt::format("{}: rank {} on {}", program, info.rank, info.host);
  fmt::print(stderr, "{} waits for a debugger: gdb -p {}\n", who, getpid());
  if (const std::string obstacle = debugger_obstacle(scope, geteuid() == 0); !obstacle.empty())
    fmt::print(stderr, "{}: {}\n", who, obstacle);
  while (tracer() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fmt::print(stderr, "{} goes on, with process {} attached\n", who, tracer());
}

}  // namespace

std::string debugger_obstacle(const std::string& scope, bool is_root) {
  if (scope.empty() || scope == "0") return "";
  if (scope == "3")
    return "no process of this machine may be traced (kernel.yama.ptrace_scope is 3, until it starts anew)";
  if (is_root) return "";
  return fmt::format(
      "only root may trace it (kernel.yama.ptrace_scope is {}): sudo gdb, or sudo sysctl "
      "kernel.yama.ptrace_scope=0",
      scope);
}

void wait_for_debugger(const char* program, std::optional<std::int64_t> asked, Rendezvous& rendezvous,
                       const std::string& comm) {
  const RankInfo& info = rendezvous.info();
  const std::string mine = asked ? std::to_string(*asked) : "none";
  const std::vector<std::string> all = rendezvous.all_gather(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    check(all[rank] == all.front(),
          "--wait-debugger: rank {} has {}, rank 0 has {}; expected the same on all", rank, all[rank],
          all.front());
  if (!asked) return;
  check(*asked >= 0 && *asked < info.world, "--wait-debugger {}: found {} {}, expected one from 0 to {}",
        *asked, info.world, info.world == 1 ? "rank" : "ranks", info.world - 1);
  const auto await_mine = [&] {
    if (*asked == info.rank) await_debugger(program, info);
  };
  if (info.world == 1) return await_mine();
  with_patience(rendezvous, comm, [&](Communicator& patient) {
    await_mine();
    patient.barrier();
  });
}

}  // namespace convoy

#include "convoy/comm/bootstrap/rendezvous.h"

#include <sys/resource.h>

#include <algorithm>

#include "convoy/comm/bootstrap/environment.h"
#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/bootstrap/mpi_rendezvous.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"

namespace convoy::dist {
namespace {

constexpr rlim_t kMaxDescriptors = rlim_t{1} << 20;  // where the hard limit is higher, or infinite

/// The rendezvous of a job of one process.
class SingleProcess final : public Rendezvous {
 public:
  explicit SingleProcess(const RendezvousPlan& plan) : Rendezvous(plan.note) {
    const HostId host = this_host();
    set_positions(0, make_rank_infos({&host, 1}, plan.source));
  }

  std::vector<std::string> all_gather(const std::string& local) override { return {local}; }
};

/// Raises the number of file descriptors that this process may open as far as it may. The usual soft limit of
/// 1,024 is for programs that use select(); connections between 250 ranks need more.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMaxDescriptors));
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

std::unique_ptr<Rendezvous> Rendezvous::init(const RendezvousOptions& options) {
  raise_descriptor_limit();
  check(options.timeout_seconds > 0, "rendezvous timeout: found {} s, expected more than 0",
        options.timeout_seconds);
  Variables variables = environment_variables();
  for (const auto& [name, value] : options.variables) variables[name] = value;
  const RendezvousPlan plan = plan_rendezvous(options.init_method, variables);
  switch (plan.method) {
    case RendezvousPlan::Method::mpi: return rendezvous_by_mpi(plan, options);
    case RendezvousPlan::Method::single_process: return std::make_unique<SingleProcess>(plan);
    case RendezvousPlan::Method::tcp:
    case RendezvousPlan::Method::file: break;
  }
  check(
      options.by_store != nullptr,
      "rendezvous by {}: this program is built without key-value stores (component cluster), expected ranks "
      "started by MPI",
      plan.note);
  return options.by_store(plan, options);
}

void check_gpu_sharing(Rendezvous& rendezvous, const std::string& gpu, bool allow_shared_gpu) {
  const std::vector<std::string> gpus = rendezvous.all_gather(gpu);
  if (allow_shared_gpu) return;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    const RankInfo& info = rendezvous.all()[rank];
    for (std::size_t other = 0; other < rank; ++other)
      if (!gpus[rank].empty() && gpus[rank] == gpus[other] && info.node == rendezvous.all()[other].node)
        throw ErrorWithRemedy<UsageError>(
            fmt::format("ranks {} and {} of host {}, which has {} ranks, would share one GPU ({})", other,
                        rank, info.host, info.local_world_size, gpus[rank]),
            "start at most one rank per GPU, or set allow_shared_gpu");
  }
}

}  // namespace convoy::dist

#include "convoy/apps/cluster/launcher/supervisor.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "convoy/apps/common/signals.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/error.h"

namespace convoy::launcher {
namespace {

constexpr double kMaxBackoffSeconds = 60;

int exit_code_of(const RankEnd& end) {
  if (!end.status) return static_cast<int>(ExitCode::peer);
  return end.status->signal != 0 ? kSignalBase + end.status->signal : end.status->code;
}

/// Returns whether the same error would occur again. ExitCode::output and ExitCode::storage are none: a disk gets space, and
/// a file server comes back.
bool is_permanent(const RankEnd& end) {
  constexpr ExitCode kPermanent[] = {ExitCode::usage, ExitCode::data, ExitCode::checkpoint,
                                     ExitCode::numeric};
  return end.status && end.status->signal == 0 &&
         std::any_of(std::begin(kPermanent), std::end(kPermanent),
                     [&](ExitCode code) { return end.status->code == static_cast<int>(code); });
}

/// Removes the failed ranks and the missing hosts. Returns false if fewer than `min_ranks` remain.
bool leave_out(const std::vector<RankEnd>& failed, const std::vector<std::string>& missing_hosts,
               std::int64_t min_ranks, std::vector<HostPlace>& hosts) {
  std::vector<HostPlace> left;
  std::int64_t ranks = 0;
  for (HostPlace place : hosts) {
    if (std::count(missing_hosts.begin(), missing_hosts.end(), place.name) != 0) continue;
    for (const RankEnd& end : failed) place.ranks -= end.host == place.name ? 1 : 0;
    if (place.ranks <= 0) continue;
    ranks += place.ranks;
    left.push_back(place);
  }
  if (ranks < min_ranks) return false;
  hosts = std::move(left);
  return true;
}

/// Sleeps until a stop signal arrives. Returns false if one does.
bool sleep_for(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (StopSignals::received() != 0) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return StopSignals::received() == 0;
}

}  // namespace

Decision decide(const AttemptResult& result, const std::vector<HostPlace>& hosts, RestartBudget& budget,
                std::optional<std::int64_t> min_ranks) {
  Decision decision{.hosts = hosts};
  std::vector<RankEnd> failed;
  for (const RankEnd& end : result.ends)
    if (!(end.status && end.status->is_success())) failed.push_back(end);
  if (result.signal != 0) {
    decision.exit_code = kSignalBase + result.signal;
    return decision;
  }
  const RankEnd* const cause = cause_of(failed);
  if (!result.missing_hosts.empty()) {
    decision.reason = fmt::format("{} cannot be reached", fmt::join(result.missing_hosts, ", "));
    decision.exit_code = static_cast<int>(ExitCode::peer);
  } else if (failed.empty()) {
    return decision;
  } else {
    decision.reason = describe(*cause);
    decision.exit_code = exit_code_of(*cause);
    if (is_permanent(*cause) || (!result.drained_hosts.empty() && !min_ranks)) return decision;
  }
  budget.add(cause, result.saved);
  decision.restarts = !budget.is_used_up();
  decision.reason += budget.early_end();
  std::vector<std::string> missing = result.missing_hosts;
  missing.insert(missing.end(), result.drained_hosts.begin(), result.drained_hosts.end());
  std::erase_if(failed, [](const RankEnd& end) { return end.is_consequence() || end.has_stopped(); });
  if (min_ranks && !leave_out(failed, missing, *min_ranks, decision.hosts)) {
    decision.restarts = false;
    decision.reason += fmt::format("; fewer than --min-ranks {} remain", *min_ranks);
  }
  return decision;
}

int supervise(const LaunchOptions& options, std::vector<HostPlace> hosts) {
  const StopSignals signals;
  RestartBudget budget(options.max_restarts);
  for (int restarts = 0;; ++restarts) {
    const AttemptResult result = run_attempt(options, hosts, restarts, budget);
    Decision decision = decide(result, hosts, budget, options.min_ranks);
    if (!decision.restarts) {
      if (!decision.reason.empty()) fmt::print(stderr, "convoy-launch: {}\n", decision.reason);
      return decision.exit_code;
    }
    const auto doubled = options.backoff * std::exp2(static_cast<double>(budget.count() - 1));
    const double backoff = std::max(options.backoff, std::min(doubled, kMaxBackoffSeconds));
    fmt::print(stderr, "convoy-launch: {}; restart {} of {} in {:g} s\n", decision.reason, budget.count(),
               options.max_restarts, backoff);
    if (!sleep_for(backoff)) return kSignalBase + StopSignals::received();
    hosts = std::move(decision.hosts);
  }
}

}  // namespace convoy::launcher

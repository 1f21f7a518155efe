#include "convoy/apps/cluster/launcher/supervisor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "convoy/apps/common/signals.h"
#include "convoy/comm/core/deadline.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/error.h"

namespace convoy::launcher {
namespace {

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
         std::ranges::find(kPermanent, static_cast<ExitCode>(end.status->code)) != std::end(kPermanent);
}

}  // namespace

Decision decide(const AttemptResult& result, HostPool& pool, RestartBudget& budget,
                std::optional<std::int64_t> min_ranks) {
  Decision decision;
  std::vector<RankEnd> failed;
  for (const RankEnd& end : result.ends)
    if (!(end.status && end.status->is_success())) failed.push_back(end);
  if (result.signal != 0) {
    decision.exit_code = kSignalBase + result.signal;
    return decision;
  }
  if (result.missing_hosts.empty() && failed.empty()) return decision;
  const RankEnd* const cause = cause_of(failed);
  if (result.grows && std::ranges::all_of(failed, [](auto& end) { return end.has_stopped(); })) {
    decision.restarts = true;
  } else if (!result.missing_hosts.empty()) {
    decision.reason = fmt::format("{} cannot be reached", fmt::join(result.missing_hosts, ", "));
    decision.exit_code = static_cast<int>(ExitCode::peer);
  } else {
    decision.reason = describe(*cause);
    decision.exit_code = exit_code_of(*cause);
    if (is_permanent(*cause)) return decision;
  }
  for (const auto* hosts : {&result.missing_hosts, &result.drained_hosts})
    for (const std::string& host : *hosts) pool.exclude(host);
  pool.exclude(failed);
  if (!decision.restarts) {
    budget.add(cause, result.saved);
    decision.restarts = !budget.is_used_up();
    decision.reason += budget.early_end();
  }
  // A host whose agent was told to stop is about to end, in contrast to one that may have recovered.
  decision.hosts = pool.choose(/*may_use_excluded=*/!min_ranks && result.drained_hosts.empty());
  if (const std::int64_t needed = min_ranks.value_or(pool.ranks()); ranks_of(decision.hosts) < needed) {
    decision.restarts = false;
    decision.reason += min_ranks ? fmt::format("; fewer than --min-ranks {} remain", needed)
                                 : fmt::format("; fewer than {} ranks remain without {}", needed,
                                               fmt::join(result.drained_hosts, ", "));
  }
  return decision;
}

int supervise(const LaunchOptions& options, std::vector<HostPlace> hosts,
              const std::vector<HostPlace>& spares) {
  const StopSignals signals;
  HostPool pool(hosts, spares, options.host_cooldown.value_or(60));
  RestartBudget budget(options.max_restarts);
  for (int restarts = 0;; ++restarts) {
    const AttemptResult result = run_attempt(options, hosts, restarts, pool, budget);
    Decision decision = decide(result, pool, budget, options.min_ranks);
    if (!decision.restarts) {
      if (!decision.reason.empty()) fmt::print(stderr, "convoy-launch: {}\n", decision.reason);
      return decision.exit_code;
    }
    if (!decision.reason.empty()) {
      constexpr double kMaxBackoffSeconds = 60;
      const auto doubled = options.backoff * std::exp2(static_cast<double>(budget.count() - 1));
      const double backoff = std::max(options.backoff, std::min(doubled, kMaxBackoffSeconds));
      fmt::print(stderr, "convoy-launch: {}; restart {} of {} in {:g} s\n", decision.reason, budget.count(),
                 options.max_restarts, backoff);
      for (const dist::Deadline end(backoff); StopSignals::received() == 0 && !end.passed();)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (const int signal = StopSignals::received(); signal != 0) return kSignalBase + signal;
    }
    hosts = std::move(decision.hosts);
  }
}

}  // namespace convoy::launcher

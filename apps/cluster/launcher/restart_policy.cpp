#include "convoy/apps/cluster/launcher/restart_policy.h"

#include <algorithm>

#include "convoy/apps/common/signals.h"
#include "convoy/kernels/base/check.h"

namespace convoy::launcher {

bool RankEnd::has_stopped() const {
  return status && std::any_of(kStopSignals.begin(), kStopSignals.end(), [&](int signal) {
           return status->signal == signal || status->code == kSignalBase + signal;
         });
}

bool RankEnd::is_consequence() const {
  return was_late || (status && status->signal == 0 && status->code == static_cast<int>(ExitCode::peer));
}

std::string describe(const RankEnd& end) {
  return fmt::format("rank {} on {} {}", end.rank, end.host,
                     end.status ? describe(*end.status) : "is lost with the connection to its host");
}

const RankEnd* cause_of(const std::vector<RankEnd>& ends) {
  const auto cause =
      std::find_if_not(ends.begin(), ends.end(), [](const RankEnd& end) { return end.is_consequence(); });
  if (cause != ends.end()) return &*cause;
  return ends.empty() ? nullptr : &ends.front();
}

void RestartBudget::add(const RankEnd* cause, std::int64_t saved) {
  if (saved > saved_) count_ = 0;
  saved_ = std::max(saved_, saved);
  ++count_;
  // The end of a host has no cause in the step.
  const std::int64_t step = cause != nullptr && cause->status && !cause->has_stopped() ? cause->step : -1;
  in_step_ = step >= 0 && step == step_ ? in_step_ + 1 : 1;
  step_ = step;
}

std::string RestartBudget::early_end() const {
  return is_early() ? fmt::format("; the job ends after {} failures in a row in step {}", in_step_, step_ + 1)
                    : "";
}

}  // namespace convoy::launcher

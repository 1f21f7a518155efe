#include "convoy/apps/cluster/launcher/restart_policy.h"

#include <algorithm>
#include <cmath>

#include "convoy/apps/common/signals.h"
#include "convoy/kernels/base/check.h"

namespace convoy::launcher {

constexpr std::chrono::duration<double> kMaxCooldown{3600};

bool RankEnd::has_stopped() const {
  return status && std::ranges::any_of(kStopSignals, [&](int signal) {
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
  const auto cause = std::ranges::find_if_not(ends, &RankEnd::is_consequence);
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

HostPool::HostPool(const std::vector<HostPlace>& hosts, const std::vector<HostPlace>& spares,
                   double cooldown_seconds)
    : ranks_(ranks_of(hosts)), cooldown_(cooldown_seconds) {
  for (const auto* places : {&hosts, &spares})
    for (const HostPlace& place : *places) entries_.push_back({.place = place});
}

void HostPool::exclude(const std::string& host, int places, Clock::time_point now) {
  for (Entry& entry : entries_) {
    if (entry.place.name != host) continue;
    if (now >= entry.usable_at) {
      entry.excluded = 0;
      const auto period = std::min(cooldown_ * std::exp2(entry.periods++), kMaxCooldown);
      entry.usable_at = now + std::chrono::duration_cast<Clock::duration>(period);
    }
    entry.excluded = std::min(entry.place.ranks, entry.excluded + places);
  }
}

void HostPool::exclude(const std::vector<RankEnd>& ends) {
  for (const RankEnd& end : ends)
    if (!end.status)
      exclude(end.host);
    else if (!end.is_consequence() && !end.has_stopped() && !end.status->is_success())
      exclude(end.host, 1);
}

std::vector<HostPlace> HostPool::choose(bool may_use_excluded, Clock::time_point now) const {
  std::vector<HostPlace> places;
  int missing = ranks_;
  for (const Entry& entry : entries_) {
    const int usable = entry.place.ranks - (now < entry.usable_at ? entry.excluded : 0);
    places.push_back({.name = entry.place.name, .ranks = std::min(missing, usable)});
    missing -= places.back().ranks;
  }
  for (std::size_t i = 0; may_use_excluded && i < places.size(); ++i) {
    const int more = std::min(missing, entries_[i].place.ranks - places[i].ranks);
    places[i].ranks += more;
    missing -= more;
  }
  std::erase_if(places, [](const HostPlace& place) { return place.ranks == 0; });
  return places;
}

int ranks_of(const std::vector<HostPlace>& hosts) {
  int sum = 0;
  for (const HostPlace& host : hosts) sum += host.ranks;
  return sum;
}

}  // namespace convoy::launcher

#include "convoy/comm/cluster/control/status_group.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace convoy::dist {
namespace {

using Life = RankStatus::Life;

/// What ranks of one group have in common; nullopt for a rank that is in no group.
auto state_of(const RankStatus& rank, double quiet_seconds) {
  using Numbers = std::vector<std::pair<std::string, std::uint64_t>>;  // by communicator
  using State = std::tuple<Life, bool, bool, Phase, std::int64_t, Numbers, Numbers>;
  const bool is_alone = (rank.life != Life::running && rank.life != Life::left) || rank.stop_code != 0 ||
                        !rank.failure.empty() || !rank.stack.empty();
  if (is_alone) return std::optional<State>();
  if (is_quiet(rank, quiet_seconds))
    return std::optional<State>({rank.life, true, rank.limit() == Wait::storage, {}, 0, {}, {}});
  Numbers inside, completed;
  for (const RankStatus::Collective& each : rank.collectives)
    inside.emplace_back(each.communicator, each.number);
  for (const RankStatus::Progress& each : rank.progress)
    completed.emplace_back(each.communicator, each.completed);
  return std::optional<State>(
      {rank.life, false, rank.is_responsive(), rank.phase, rank.step, inside, completed});
}

void merge(RankStatus& into, RankStatus rank) {
  if (rank.limit() == Wait::storage && rank.io_seconds > into.io_seconds)
    std::swap(into, rank);  // may be the late one
  into.progress_seconds = std::min(into.progress_seconds, rank.progress_seconds);
  into.phase_seconds = std::max(into.phase_seconds, rank.phase_seconds);
  into.beat_seconds = std::max(into.beat_seconds, rank.beat_seconds);
  into.io_seconds = std::max(into.io_seconds, rank.io_seconds);
  into.stop_points = std::max(into.stop_points, rank.stop_points);
  for (std::size_t i = 0; i < into.collectives.size() && i < rank.collectives.size(); ++i)
    into.collectives[i].seconds = std::max(into.collectives[i].seconds, rank.collectives[i].seconds);
  into.others.emplace_back(rank.rank, rank.rank);
  into.others.insert(into.others.end(), rank.others.begin(), rank.others.end());
}

/// Sorts ranges of ranks, and joins those without a gap between them.
void join(std::vector<std::pair<int, int>>& ranges) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<std::pair<int, int>> joined;
  for (const auto& [first, last] : ranges)
    if (!joined.empty() && first <= joined.back().second + 1)
      joined.back().second = std::max(joined.back().second, last);
    else
      joined.emplace_back(first, last);
  ranges = std::move(joined);
}

}  // namespace

bool is_quiet(const RankStatus& rank, double seconds) {
  if (rank.life == Life::left) return true;
  const double idle = rank.limit() == Wait::storage ? rank.io_seconds : rank.progress_seconds;
  return rank.life == Life::running && rank.beat_seconds < seconds && idle < seconds;
}

std::vector<RankStatus> grouped(std::vector<RankStatus> ranks, double quiet_seconds, int kept) {
  std::vector<RankStatus> statuses;
  std::map<typename decltype(state_of(ranks.front(), 0))::value_type, RankStatus> groups;
  for (RankStatus& rank : ranks) {
    const auto state = state_of(rank, quiet_seconds);
    if (!state || rank.rank == kept) {
      statuses.push_back(std::move(rank));
    } else if (const auto found = groups.find(*state); found != groups.end()) {
      merge(found->second, std::move(rank));
    } else {
      groups.emplace(*state, std::move(rank));
    }
  }
  for (auto& [state, status] : groups) {
    join(status.others);
    statuses.push_back(std::move(status));
  }
  std::ranges::sort(statuses, {}, &RankStatus::rank);
  return statuses;
}

std::size_t count_ranks(const std::vector<RankStatus>& statuses) {
  std::size_t count = statuses.size();
  for (const RankStatus& status : statuses)
    for (const auto& [first, last] : status.others) count += static_cast<std::size_t>(last - first + 1);
  return count;
}

std::vector<RankStatus> expanded(const std::vector<RankStatus>& statuses, const std::vector<RankInfo>& all) {
  std::vector<RankStatus> ranks;
  for (const RankStatus& status : statuses) {
    RankStatus& first = ranks.emplace_back(status);
    first.others.clear();
    for (const auto& [begin, last] : status.others)
      for (int rank = begin; rank <= last; ++rank) {
        RankStatus next = status;
        next.others.clear();
        next.rank = rank;
        next.host = all[static_cast<std::size_t>(rank)].host;
        ranks.push_back(std::move(next));
      }
  }
  std::ranges::sort(ranks, {}, &RankStatus::rank);
  return ranks;
}

}  // namespace convoy::dist

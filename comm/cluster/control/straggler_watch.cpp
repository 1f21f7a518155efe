#include "convoy/comm/cluster/control/straggler_watch.h"

#include <algorithm>
#include <numeric>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

/// Returns the median of sorted values without the one at the index `left_out`, unless that is their number.
double median_of(const std::vector<double>& sorted, std::size_t left_out) {
  const std::size_t count = sorted.size() - (left_out < sorted.size() ? 1 : 0);
  const auto at = [&](std::size_t index) { return sorted[index < left_out ? index : index + 1]; };
  return count % 2 == 1 ? at(count / 2) : (at(count / 2 - 1) + at(count / 2)) / 2;
}

}  // namespace

std::vector<std::string> StragglerWatch::observe(std::span<const RankStatus> ranks, double window_seconds) {
  std::uint64_t block = ranks.size() < 2 ? 0 : ranks.front().pace.block;
  for (const RankStatus& rank : ranks) block = std::min(block, rank.pace.block);
  if (block <= considered_) return {};
  considered_ = block;
  std::vector<std::vector<double>> own;  // by rank: in each phase, and in all of them
  for (const RankStatus& rank : ranks) {
    std::vector<double>& seconds = own.emplace_back(rank.pace.own_seconds);
    seconds.resize(kStepPhases);
    seconds.push_back(std::accumulate(seconds.begin(), seconds.end(), 0.0));
  }
  std::vector<std::vector<double>> sorted(own.front().size());  // by part
  for (const std::vector<double>& of_rank : own)
    for (std::size_t part = 0; part < sorted.size(); ++part) sorted[part].push_back(of_rank[part]);
  for (std::vector<double>& values : sorted) std::sort(values.begin(), values.end());
  window_.push_back(own);
  if (window_.size() > kBlocks) window_.pop_front();
  is_named_.resize(ranks.size());
  std::vector<std::string> named;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<double>& excess = window_.back()[rank];
    for (std::size_t part = 0; part < excess.size(); ++part) {
      const auto mine = std::lower_bound(sorted[part].begin(), sorted[part].end(), own[rank][part]);
      excess[part] -= median_of(sorted[part], static_cast<std::size_t>(mine - sorted[part].begin()));
    }
    excess.back() /= std::max(ranks[rank].pace.step_seconds - excess.back(), 1e-9);

    std::vector<double> slow, by_phase(kStepPhases);
    for (const auto& of_block : window_) {
      slow.push_back(of_block[rank].back());
      for (std::size_t phase = 0; phase < by_phase.size(); ++phase) by_phase[phase] += of_block[rank][phase];
    }
    std::sort(slow.begin(), slow.end());
    const double median = median_of(slow, slow.size());
    const bool is_slow = slow.size() == kBlocks && median >= kSlow && slow[kOutliers] >= kSlow / 2;
    if (is_slow && !is_named_[rank])
      named.push_back(fmt::format(
          "rank {} on {} has been {:.0f} % slower than the other ranks for {:g} s, most of it {} (step {})",
          ranks[rank].rank, ranks[rank].host, 100 * median, window_seconds,
          to_string(static_cast<Phase>(
              kFirstStepPhase + (std::max_element(by_phase.begin(), by_phase.end()) - by_phase.begin()))),
          ranks[rank].step));
    is_named_[rank] = is_slow || (is_named_[rank] && median >= kSlow / 2);
  }
  return named;
}

}  // namespace convoy::dist

#include "convoy/comm/cluster/hierarchical/hierarchical_layout.h"

#include <algorithm>

namespace convoy::dist {

HierarchicalLayout::HierarchicalLayout(std::span<const int> host_of_rank, int rank) : rank_(rank) {
  std::vector<int> numbers;
  for (std::size_t other = 0; other < host_of_rank.size(); ++other) {
    const auto found = std::find(numbers.begin(), numbers.end(), host_of_rank[other]);
    const auto host = static_cast<std::size_t>(found - numbers.begin());
    if (found == numbers.end()) {
      numbers.push_back(host_of_rank[other]);
      ranks_.emplace_back();
    }
    locations_.push_back(
        {.host = static_cast<int>(host), .local_rank = static_cast<int>(ranks_[host].size())});
    ranks_[host].push_back(static_cast<int>(other));
  }
  const auto smallest = std::min_element(ranks_.begin(), ranks_.end(),
                                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
  leaders_per_host_ = static_cast<int>(smallest->size());
}

int HierarchicalLayout::peer_of(int rank, int host) const {
  const std::vector<int>& ranks = ranks_of(host);
  return ranks[static_cast<std::size_t>(local_rank_of(rank)) % ranks.size()];
}

std::size_t HierarchicalLayout::default_chunk_bytes() const {
  constexpr std::size_t kMiB = std::size_t{1} << 20, kMinMessageBytes = kMiB / 16;
  const auto messages = static_cast<std::size_t>(hosts()) * static_cast<std::size_t>(leaders_per_host_);
  return std::clamp(kMinMessageBytes * messages, 2 * kMiB, 16 * kMiB);
}

std::size_t HierarchicalLayout::small_chunk_bytes() const {
  constexpr std::size_t kMaxChunk = std::size_t{1} << 16,
                        kMaxOfHost = std::size_t{1} << 20;  // in one direction
  std::size_t most = 1;                                     // ranks of a host
  for (const std::vector<int>& ranks : ranks_) most = std::max(most, ranks.size());
  return std::min(kMaxChunk, kMaxOfHost / most);
}

}  // namespace convoy::dist

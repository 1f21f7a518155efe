#include "convoy/kernels/runtime/algorithm_cache.h"

namespace convoy {

std::optional<std::string> AlgorithmCache::find(std::string_view key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  order_.splice(order_.end(), order_, found->second);
  return found->second->second;
}

void AlgorithmCache::insert(std::string key, std::string value) {
  if (const auto found = find(key)) {  // find() has moved the entry to the end
    if (*found == value) return;
    order_.back().second = std::move(value);
    ++revision_;
    return;
  }
  order_.emplace_back(std::move(key), std::move(value));
  by_key_.emplace(order_.back().first, std::prev(order_.end()));
  ++revision_;
  if (order_.size() <= capacity_) return;
  by_key_.erase(order_.front().first);
  order_.pop_front();
}

std::vector<std::pair<std::string, std::string>> AlgorithmCache::entries() const {
  return {order_.begin(), order_.end()};
}

}  // namespace convoy

#include "convoy/kernels/runtime/algorithm_cache.h"

namespace convoy {

std::optional<std::string> AlgorithmCache::find(std::string_view key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  order_.splice(order_.end(), order_, found->second);
  return found->second->value;
}

std::string AlgorithmCache::code(std::string_view key) const {
  const auto found = by_key_.find(key);
  return found != by_key_.end() ? found->second->code : "";
}

void AlgorithmCache::insert(std::string key, std::string value, std::string code) {
  if (const auto found = find(key)) {  // find() has moved the entry to the end
    Entry& entry = order_.back();
    if (*found == value && (code.empty() || code == entry.code)) return;
    entry.value = std::move(value);
    entry.code = std::move(code);
    ++revision_;
    return;
  }
  order_.push_back({std::move(key), std::move(value), std::move(code)});
  by_key_.emplace(order_.back().key, std::prev(order_.end()));
  ++revision_;
  if (order_.size() <= capacity_) return;
  by_key_.erase(order_.front().key);
  order_.pop_front();
}

std::vector<std::pair<std::string, std::string>> AlgorithmCache::entries() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const Entry& entry : order_) result.emplace_back(entry.key, entry.value);
  return result;
}

}  // namespace convoy

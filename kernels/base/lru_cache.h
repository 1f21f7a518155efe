// A fixed-capacity map that evicts the least recently used entry.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace convoy {

/// A map that holds at most `capacity` entries. Not thread-safe.
template <class Key, class Value>
class LruCache {
 public:
  explicit LruCache(std::size_t capacity) : capacity_(capacity) {}

  /// Returns the value of `key` and marks the entry as the most recently used. Returns nullptr if there is no
  /// such entry. The pointer is valid until the next insert().
  Value* find(const Key& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    order_.splice(order_.end(), order_, found->second);
    return &found->second->second;
  }
  /// Adds or replaces the entry and returns its value. Evicts the least recently used entry if the map is
  /// full.
  Value& insert(const Key& key, Value value) {
    if (Value* const found = find(key)) return *found = std::move(value);
    order_.emplace_back(key, std::move(value));
    by_key_.emplace(key, std::prev(order_.end()));
    if (order_.size() > capacity_) {
      by_key_.erase(order_.front().first);
      order_.pop_front();
    }
    return order_.back().second;
  }
  std::size_t size() const { return order_.size(); }

 private:
  using Entry = std::pair<const Key, Value>;
  std::size_t capacity_;
  std::list<Entry> order_;  // least recently used first
  std::map<Key, typename std::list<Entry>::iterator> by_key_;
};

}  // namespace convoy

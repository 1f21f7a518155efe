// What was timed once and chosen: which of a library's algorithms computes a convolution of one shape. Kept
// by key, so that a choice can be stored and taken up by the next run on the same hardware.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace convoy {

/// Keys and values are one line of text each, in words of whoever chooses; a value that he no longer
/// understands counts as none. Holds the `capacity` entries that were used last. One thread at a time.
class TimedChoices {
 public:
  explicit TimedChoices(std::size_t capacity = 1024) : capacity_(capacity) {}

  /// Makes the entry the most recently used.
  std::optional<std::string> find(std::string_view key);
  /// Adds or replaces; drops the least recently used entry where there are too many.
  void insert(std::string key, std::string value);

  /// Least recently used first, so that inserting them in order gives the same table.
  std::vector<std::pair<std::string, std::string>> entries() const;
  std::size_t size() const { return order_.size(); }
  /// Goes up with each entry that was added or changed: has there been anything new since it was stored?
  std::uint64_t revision() const { return revision_; }

 private:
  using Entry = std::pair<std::string, std::string>;
  std::size_t capacity_;
  std::uint64_t revision_ = 0;
  std::list<Entry> order_;                                                   // least recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;  // keys point into order_
};

}  // namespace convoy

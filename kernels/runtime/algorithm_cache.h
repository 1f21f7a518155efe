// Results of autotuning: which of a library's algorithms is fastest for one problem, such as a convolution of
// one shape. The entries can be saved to a file and loaded by the next run on the same hardware.
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

/// A map from problems to algorithms that keeps the `capacity` most recently used entries. Keys and values
/// are one line of text each. Their format belongs to the code that autotunes, which treats a value that it
/// cannot parse as missing. An entry may also have compiled code of its algorithm, which only saves the time
/// to compile it. Not thread-safe.
class AlgorithmCache {
 public:
  /// Creates an empty cache for at most `capacity` entries.
  explicit AlgorithmCache(std::size_t capacity = 1024) : capacity_(capacity) {}

  /// Returns the value of `key`, if there is one, and marks the entry as the most recently used.
  std::optional<std::string> find(std::string_view key);
  /// Adds or replaces the entry. Evicts the least recently used entry if the cache is full. Without new code,
  /// an entry whose value does not change keeps its code.
  void insert(std::string key, std::string value, std::string code = "");
  /// Returns the compiled code of the algorithm of `key`, or "".
  std::string code(std::string_view key) const;

  /// Returns all entries, the least recently used one first. Inserting them in this order restores the cache.
  std::vector<std::pair<std::string, std::string>> entries() const;
  /// Returns the number of entries.
  std::size_t size() const { return order_.size(); }
  /// Returns a number that increases whenever an entry is added or changed. Compare it to see whether the
  /// cache has changed since it was last saved.
  std::uint64_t revision() const { return revision_; }

 private:
  struct Entry {
    std::string key, value, code;
  };
  std::size_t capacity_;
  std::uint64_t revision_ = 0;
  std::list<Entry> order_;                                                   // least recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;  // keys point into order_
};

}  // namespace convoy

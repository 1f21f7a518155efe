// A set of the bytes of an array.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace convoy::emulator {

/// Numbers below a limit, which is 0 at first; a bit for each.
class ByteSet {
 public:
  bool is_empty() const { return bits_.empty(); }
  /// Raises the limit to `bytes`.
  void reserve(std::size_t bytes) {
    if (bits_.size() * kBits < bytes) bits_.resize(bytes / kBits + 1);
  }
  void clear() { std::fill(bits_.begin(), bits_.end(), 0); }
  /// Adds [begin, begin + count), which is below the limit.
  void add(std::size_t begin, std::size_t count) {
    for_each_word(begin, count, [&](std::size_t word, std::uint64_t mask) { bits_[word] |= mask; });
  }
  /// Returns whether all of [begin, begin + count) are in the set.
  bool has_all(std::size_t begin, std::size_t count) const {
    bool result = true;
    for_each_word(begin, count, [&](std::size_t word, std::uint64_t mask) {
      result = result && word < bits_.size() && (bits_[word] & mask) == mask;
    });
    return result;
  }
  /// Returns the first number that is in both sets, or -1.
  std::ptrdiff_t first_common(const ByteSet& other) const {
    for (std::size_t word = 0; word < std::min(bits_.size(), other.bits_.size()); ++word)
      if (const std::uint64_t both = bits_[word] & other.bits_[word]; both != 0)
        return static_cast<std::ptrdiff_t>(word * kBits) + std::countr_zero(both);
    return -1;
  }
  std::uint64_t count() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t word : bits_) sum += static_cast<std::uint64_t>(std::popcount(word));
    return sum;
  }

 private:
  static constexpr std::size_t kBits = 64;

  /// Calls f(word, mask) for each word with some of [begin, begin + count).
  template <class F>
  static void for_each_word(std::size_t begin, std::size_t count, F&& f) {
    for (const std::size_t end = begin + count; begin < end;) {
      const std::size_t first = begin % kBits, in_word = std::min(kBits - first, end - begin);
      f(begin / kBits, (in_word == kBits ? ~std::uint64_t{0} : (std::uint64_t{1} << in_word) - 1) << first);
      begin += in_word;
    }
  }

  std::vector<std::uint64_t> bits_;
};

}  // namespace convoy::emulator

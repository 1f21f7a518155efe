#include "convoy/kernels/runtime/memory/arena.h"

#include <algorithm>

#include "convoy/kernels/base/round_up.h"
#include "convoy/kernels/runtime/memory/memory.h"

namespace convoy {

Arena::Arena(MemorySource& source) : source_(source), segment_bytes_(source.segment_bytes()) {}

bool Arena::serves(std::size_t bytes) const {
  constexpr std::size_t kMinBytes = std::size_t{2} << 20;
  return segment_bytes_ > 0 && bytes >= kMinBytes;
}

std::size_t Arena::rounded(std::size_t bytes) { return round_up(bytes, 4096); }  // whole pages

void* Arena::reuse(std::size_t bytes) {
  const auto fits = by_size_.lower_bound({bytes, nullptr});
  if (fits == by_size_.end()) return nullptr;
  const auto [size, begin] = *fits;
  erase(begin, size);
  if (size > bytes) insert(begin + bytes, size - bytes);
  return begin;
}

void* Arena::extend(std::size_t bytes) {
  if (static_cast<std::size_t>(end_ - untouched_) < bytes && !add_segment(std::max(bytes, segment_bytes_)) &&
      !add_segment(bytes))
    return nullptr;
  std::byte* const block = untouched_;
  untouched_ += bytes;
  return block;
}

bool Arena::add_segment(std::size_t bytes) {
  auto* const begin = static_cast<std::byte*>(source_.allocate(bytes));
  if (begin == nullptr) return false;
  segments_.emplace(begin, bytes);
  // The unused rest of the previous segment becomes a free range.
  if (untouched_ != end_) release(untouched_, static_cast<std::size_t>(end_ - untouched_));
  untouched_ = begin;
  end_ = begin + bytes;
  return true;
}

void Arena::release(void* block, std::size_t bytes) {
  auto* begin = static_cast<std::byte*>(block);
  // Ranges of different segments are not merged.
  const auto joins_at = [&](std::byte* border) { return !segments_.contains(border); };
  const auto next = free_.find(begin + bytes);
  if (next != free_.end() && joins_at(next->first)) {
    const std::size_t more = next->second;
    erase(begin + bytes, more);
    bytes += more;
  }
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin() && joins_at(begin)) {
    const auto [previous, size] = *std::prev(after);
    if (previous + size == begin) {
      erase(previous, size);
      begin = previous;
      bytes += size;
    }
  }
  insert(begin, bytes);
}

void Arena::trim() noexcept {
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto [begin, bytes] = *segment;
    const bool is_newest = begin + bytes == end_;
    const std::size_t touched = is_newest ? static_cast<std::size_t>(untouched_ - begin) : bytes;
    const auto range = free_.find(begin);
    if (range == free_.end() || range->second != touched) {
      ++segment;
      continue;
    }
    erase(begin, touched);
    if (is_newest) untouched_ = end_ = nullptr;
    segment = segments_.erase(segment);
    source_.release(begin, bytes);
  }
}

void Arena::insert(std::byte* begin, std::size_t bytes) {
  free_.emplace(begin, bytes);
  by_size_.emplace(bytes, begin);
  free_bytes_ += bytes;
}

void Arena::erase(std::byte* begin, std::size_t bytes) {
  free_.erase(begin);
  by_size_.erase({bytes, begin});
  free_bytes_ -= bytes;
}

}  // namespace convoy

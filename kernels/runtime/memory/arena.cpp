#include "convoy/kernels/runtime/memory/arena.h"

#include <algorithm>

#include "convoy/kernels/base/round_up.h"
#include "convoy/kernels/runtime/memory/memory.h"

namespace convoy {

void* FreeRanges::take(std::size_t bytes) {
  const auto fits = by_size_.lower_bound({bytes, nullptr});
  if (fits == by_size_.end()) return nullptr;
  const auto [size, begin] = *fits;
  erase(begin);
  if (size > bytes) insert(begin + bytes, size - bytes);
  return begin;
}

void FreeRanges::add(void* block, std::size_t bytes, const Ranges& segments) {
  auto* begin = static_cast<std::byte*>(block);
  const auto joins_at = [&](std::byte* border) { return !segments.contains(border); };
  const auto next = ranges_.find(begin + bytes);
  if (next != ranges_.end() && joins_at(next->first)) {
    bytes += next->second;
    erase(next->first);
  }
  const auto after = ranges_.lower_bound(begin);
  if (after != ranges_.begin() && joins_at(begin)) {
    const auto [previous, size] = *std::prev(after);
    if (previous + size == begin) {
      erase(previous);
      begin = previous;
      bytes += size;
    }
  }
  insert(begin, bytes);
}

void FreeRanges::insert(std::byte* begin, std::size_t bytes) {
  ranges_.emplace(begin, bytes);
  by_size_.emplace(bytes, begin);
  bytes_ += bytes;
}

void FreeRanges::erase(std::byte* begin) {
  const auto range = ranges_.find(begin);
  by_size_.erase({range->second, begin});
  bytes_ -= range->second;
  ranges_.erase(range);
}

Arena::Arena(MemorySource& source) : source_(source), segment_bytes_(source.segment_bytes()) {}

bool Arena::serves(std::size_t bytes) const {
  constexpr std::size_t kMinBytes = std::size_t{2} << 20;
  return segment_bytes_ > 0 && bytes >= kMinBytes;
}

std::size_t Arena::rounded(std::size_t bytes) { return round_up(bytes, 4096); }  // whole pages

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

void Arena::trim() noexcept {
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto [begin, bytes] = *segment;
    const bool is_newest = begin + bytes == end_;
    const std::size_t touched = is_newest ? static_cast<std::size_t>(untouched_ - begin) : bytes;
    const auto range = free_.ranges().find(begin);
    if (range == free_.ranges().end() || range->second != touched) {
      ++segment;
      continue;
    }
    free_.erase(begin);
    if (is_newest) untouched_ = end_ = nullptr;
    segment = segments_.erase(segment);
    source_.release(begin, bytes);
  }
}

}  // namespace convoy

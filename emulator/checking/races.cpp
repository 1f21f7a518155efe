#include "emulator/checking/races.h"

#include <algorithm>

namespace convoy::emulator {

void BlockRaces::begin_block(unsigned threads, unsigned blocks) {
  constexpr std::size_t kMaxWords = std::size_t{1} << 20;  // of memory to keep
  ++epoch_;
  if (words_.size() > kMaxWords) words_.clear();
  stride_ = (threads + kLanes - 1) / kLanes * kLanes;
  block_epochs_.assign(blocks, 0);
  arrived_.assign(std::size_t{stride_} * blocks, 0);
  waited_.assign(arrived_.size(), 0);
  epochs_of_barriers_.clear();
  seen_.assign(arrived_.size(), {});
  for (unsigned thread = 0; thread < seen_.size(); ++thread) seen_[thread][thread % kLanes] = 1;
}

void BlockRaces::barrier(unsigned rank) {
  ++block_epochs_[rank];
  if (block_epochs_.size() == 1) {
    ++epoch_;
    return;
  }
  const auto begin = waited_.begin() + rank * stride_;
  std::fill(begin, begin + stride_, waited_of_block(rank));
}

unsigned BlockRaces::waited_of_block(unsigned rank) const {
  const auto begin = waited_.begin() + rank * stride_;
  return *std::max_element(begin, begin + stride_);
}

/// Returns whether a touch comes before all further accesses of `thread`.
bool BlockRaces::is_before(const Touch& touch, unsigned thread) const {
  if (touch.thread == thread) return true;
  if (touch.thread / kLanes == thread / kLanes && seen_[thread][touch.thread % kLanes] >= touch.turn)
    return true;
  const unsigned first = touch.thread / stride_;
  if (has_clock() && touch.time != 0 && first == thread / stride_ &&
      ThreadClocks::running->has_seen(thread % stride_, touch.thread % stride_, touch.time))
    return true;
  if (first == thread / stride_ && touch.epoch < block_epochs_[first]) return true;
  // A barrier of the cluster; or one of the block before the last thread of the block arrived there.
  const unsigned waited = waited_[thread];
  return touch.arrived < waited || (waited > 0 && touch.epoch < epochs_of_barriers_[waited - 1][first]);
}

std::optional<Race> BlockRaces::access(unsigned thread, std::uintptr_t begin, std::size_t bytes,
                                       AccessKind kind, const void* site, bool is_shared) {
  constexpr std::uintptr_t kWord = 4;
  std::optional<Race> race;
  const std::uintptr_t end = begin + bytes;
  for (std::uintptr_t word_begin = begin / kWord * kWord; word_begin < end; word_begin += kWord) {
    Touch now{.thread = thread,
              .turn = seen_[thread][thread % kLanes],
              .epoch = block_epochs_[thread / stride_],
              .arrived = arrived_[thread],
              .time = has_clock() ? ThreadClocks::running->now(thread % stride_) : 0,
              .bytes = 0,
              .kind = kind,
              .site = site};
    for (std::uintptr_t byte = 0; byte < kWord; ++byte)
      if (word_begin + byte >= begin && word_begin + byte < end)
        now.bytes |= static_cast<std::uint8_t>(1u << byte);
    Word& word = words_[word_begin];
    if (word.epoch != epoch_) word.touches.clear();
    word.epoch = epoch_;
    const auto conflicts = [&](const Touch& earlier) {
      const bool is_store = kind != AccessKind::load || earlier.kind != AccessKind::load;
      const bool is_atomic = kind == AccessKind::atomic && earlier.kind == AccessKind::atomic;
      const bool is_possible = is_shared || earlier.thread / stride_ == thread / stride_;
      return is_possible && is_store && !is_atomic && (earlier.bytes & now.bytes) != 0 &&
             !is_before(earlier, thread);
    };
    const auto found = std::find_if(word.touches.begin(), word.touches.end(), conflicts);
    if (found != word.touches.end() && !race) race = Race{found->thread, found->kind, found->site};
    // An earlier access is not needed if all that could be in conflict with it is so with this one.
    std::erase_if(word.touches, [&](const Touch& earlier) {
      return (kind == AccessKind::store || kind == earlier.kind) && (earlier.bytes & ~now.bytes) == 0 &&
             is_before(earlier, thread);
    });
    // Those before a barrier for which all threads have waited.
    if (word.touches.size() > 4 * kLanes && block_epochs_.size() > 1)
      std::erase_if(word.touches, [oldest = *std::min_element(waited_.begin(), waited_.end())](
                                      const Touch& earlier) { return earlier.arrived < oldest; });
    // More loads than a warp has lanes are of two warps, so every store of another thread is in conflict with
    // one.
    if (word.touches.size() <= 4 * kLanes) word.touches.push_back(now);
  }
  return race;
}

void BlockRaces::warp_barrier(unsigned warp, unsigned mask) {
  std::array<std::uint32_t, kLanes> all{};
  const auto for_each_lane = [&](auto&& f) {
    for (unsigned lane = 0; lane < kLanes; ++lane)
      if ((mask >> lane & 1u) != 0) f(lane, seen_[warp * kLanes + lane]);
  };
  for_each_lane([&](unsigned, const auto& seen) {
    for (unsigned other = 0; other < kLanes; ++other) all[other] = std::max(all[other], seen[other]);
  });
  for_each_lane([&](unsigned lane, auto& seen) {
    seen = all;
    ++seen[lane];
  });
}

}  // namespace convoy::emulator

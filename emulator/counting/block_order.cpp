#include "emulator/counting/block_order.h"

#include <algorithm>

namespace convoy::emulator {

BlockOrder::Tag BlockOrder::store(unsigned thread) {
  if (!is_open_ || stores_.back().thread != thread)
    stores_.push_back({.block = block_, .epoch = epoch_, .thread = thread, .is_released = false});
  is_open_ = true;
  return static_cast<Tag>(stores_.size() - 1);
}

bool BlockOrder::is_ordered(unsigned thread, Tag last_store) const {
  if (last_store == 0 || stores_[last_store].block == block_) return true;
  return stores_[last_store].is_released &&
         std::any_of(acquired_.begin(), acquired_.end(), [&](const Acquired& acquired) {
           return acquired.thread == thread || acquired.epoch < epoch_;
         });
}

void BlockOrder::fence(unsigned thread) {
  is_open_ = false;
  fences_[thread] = {.epoch = epoch_, .stores = stores_.size()};
  if (std::find(atomics_.begin(), atomics_.end(), thread) != atomics_.end())
    acquired_.push_back({.epoch = epoch_, .thread = thread});
}

void BlockOrder::atomic(unsigned thread) {
  atomics_.push_back(thread);
  const auto fence = fences_.find(thread);
  if (fence == fences_.end()) return;
  for (std::size_t i = first_of_block_; i < fence->second.stores; ++i)
    if (stores_[i].thread == thread || stores_[i].epoch < fence->second.epoch) stores_[i].is_released = true;
}

void BlockOrder::barrier() {
  is_open_ = false;
  ++epoch_;
}

void BlockOrder::begin_block() {
  is_open_ = false;
  ++block_;
  epoch_ = 0;
  first_of_block_ = stores_.size();
  fences_.clear();
  atomics_.clear();
  acquired_.clear();
}

}  // namespace convoy::emulator

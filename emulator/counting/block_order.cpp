#include "emulator/counting/block_order.h"

#include <algorithm>

namespace convoy::emulator {

BlockOrder::Block& BlockOrder::of_running() {
  while (blocks_.size() <= running_rank)
    blocks_.push_back({.number = next_block_++, .first = stores_.size()});
  return blocks_[running_rank];
}

BlockOrder::Tag BlockOrder::store(unsigned thread) {
  Block& block = of_running();
  if (block.open == 0 || stores_[block.open].thread != thread || stores_[block.open].phase != phase_) {
    block.open = stores_.size();
    stores_.push_back({.block = block.number,
                       .epoch = block.epoch,
                       .thread = thread,
                       .phase = phase_,
                       .is_released = false});
  }
  return static_cast<Tag>(block.open);
}

bool BlockOrder::is_ordered(unsigned thread, Tag last_store) {
  if (last_store == 0) return true;
  const Block& block = of_running();
  const Stores& stores = stores_[last_store];
  if (stores.block == block.number || (stores.block >= first_block_ && stores.phase < phase_)) return true;
  return stores.is_released &&
         std::any_of(block.acquired.begin(), block.acquired.end(), [&](const Acquired& acquired) {
           return acquired.thread == thread || acquired.epoch < block.epoch;
         });
}

void BlockOrder::fence(unsigned thread) {
  Block& block = of_running();
  block.open = 0;
  block.fences[thread] = {.epoch = block.epoch, .stores = stores_.size()};
  if (std::find(block.atomics.begin(), block.atomics.end(), thread) != block.atomics.end())
    block.acquired.push_back({.epoch = block.epoch, .thread = thread});
}

void BlockOrder::atomic(unsigned thread) {
  Block& block = of_running();
  block.atomics.push_back(thread);
  const auto fence = block.fences.find(thread);
  if (fence == block.fences.end()) return;
  for (std::size_t i = block.first; i < fence->second.stores; ++i)
    if (stores_[i].block == block.number &&
        (stores_[i].thread == thread || stores_[i].epoch < fence->second.epoch))
      stores_[i].is_released = true;
}

void BlockOrder::barrier() {
  Block& block = of_running();
  block.open = 0;
  ++block.epoch;
}

void BlockOrder::begin_cluster() {
  blocks_.clear();
  first_block_ = next_block_;
  phase_ = 0;
}

}  // namespace convoy::emulator

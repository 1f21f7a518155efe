#include "emulator/runtime/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "emulator/checking/access_checker.h"
#include "emulator/runtime/emulator.h"
#include "emulator/runtime/sanitizer.h"

namespace convoy::emulator {

void* Memory::allocate(int place, std::size_t bytes, std::size_t alignment) {
  void* block = nullptr;
  AccessChecker* const checker = AccessChecker::current();
  if (checker != nullptr && place != kPinned) checker->device_arena().set_access(true);
  if (checker != nullptr)
    block = checker->allocate(bytes, place == kPinned);
  else if (posix_memalign(&block, alignment, std::max<std::size_t>(bytes, 1)) != 0)
    return nullptr;
  if (block == nullptr) return nullptr;
  std::memset(block, kUninitialized, bytes);
  blocks_[block] = {.bytes = bytes, .place = place};
  return block;
}

void* Memory::allocate(int gpu, std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;  // guaranteed by cudaMalloc
  void* const block = allocate(gpu, bytes, kAlignment);
  if (block != nullptr) poison(block, bytes);
  if (AccessChecker* const checker = AccessChecker::current()) checker->device_arena().set_access(false);
  return block;
}

void* Memory::allocate_pinned(std::size_t bytes, bool is_managed) {
  constexpr std::size_t kPage = 4096;
  void* const block = allocate(kPinned, bytes, kPage);
  if (block != nullptr) blocks_[block].is_managed = is_managed;
  return block;
}

Memory::Block* Memory::find_start(void* block) {
  const auto found = blocks_.find(block);
  return found != blocks_.end() && !found->second.is_retired ? &found->second : nullptr;
}

bool Memory::retire(void* block) {
  Block* const held = find_start(block);
  const bool is_ours = held != nullptr && (held->place != kPinned || held->is_managed);
  return is_ours && (held->is_retired = true);
}

bool Memory::retire_pinned(void* block) {
  Block* const held = find_start(block);
  const bool is_ours = held != nullptr && held->place == kPinned && !held->is_managed;
  return is_ours && (held->is_retired = true);
}

void Memory::free_retired() {
  for (auto next = blocks_.begin(); next != blocks_.end();) {
    if (!next->second.is_retired) {
      ++next;
      continue;
    }
    void* const block = const_cast<void*>(next->first);
    unpoison(block, next->second.bytes);
    if (AccessChecker* const checker = AccessChecker::current())
      checker->release(block);
    else
      std::free(block);
    next = blocks_.erase(next);
  }
}

void Memory::set_access(int gpu, bool is_open) {
  if (AccessChecker* const checker = AccessChecker::current())
    return checker->device_arena().set_access(is_open);
  for (const auto& [begin, block] : blocks_) {
    if (block.place == kPinned || (gpu != kEveryGpu && block.place != gpu)) continue;
    is_open ? unpoison(begin, block.bytes) : poison(begin, block.bytes);
  }
}

const Memory::Block* Memory::find(const void* begin, std::size_t bytes) const {
  const auto next = blocks_.upper_bound(begin);
  if (next == blocks_.begin()) return nullptr;
  const auto& [start, block] = *std::prev(next);
  const auto offset =
      static_cast<std::size_t>(static_cast<const char*>(begin) - static_cast<const char*>(start));
  return !block.is_retired && offset <= block.bytes && bytes <= block.bytes - offset ? &block : nullptr;
}

bool Memory::is_on_gpu(const void* begin, std::size_t bytes) const {
  const Block* const block = find(begin, bytes);
  return block != nullptr && block->place != kPinned;
}

bool Memory::is_on(int gpu, const void* begin, std::size_t bytes) const {
  const Block* const block = find(begin, bytes);
  return block != nullptr && block->place == gpu;
}

bool Memory::is_pinned(const void* begin, std::size_t bytes) const {
  const Block* const block = find(begin, bytes);
  return block != nullptr && block->place == kPinned;
}

std::vector<AccessCounter::Range> Memory::accessible(int gpu) const {
  std::vector<AccessCounter::Range> ranges;
  for (const auto& [begin, block] : blocks_)
    if (block.place == gpu || block.place == kPinned)
      ranges.push_back({static_cast<const char*>(begin), block.bytes});
  return ranges;
}

std::size_t Memory::used(int place) const {
  std::size_t sum = 0;
  for (const auto& [begin, block] : blocks_)
    if (block.place == place && !block.is_retired) sum += block.bytes;
  return sum;
}

}  // namespace convoy::emulator

// One launch over many arrays. Which arrays they are travels in a table among the kernel's parameters:
// nothing is copied to the device or allocated there, and a captured graph keeps it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/element.h"
#include "kernels/cuda/launch.h"

namespace convoy::cuda {

/// Of the 4 KiB that any GPU takes as a kernel's parameters; the rest is for the parameters beside the table.
inline constexpr std::size_t kTableBytes = 4096 - 128;

/// A Slot names the arrays that belong together, their number of elements `numel`, and the first of the
/// blocks that work on them, `first_block`, which for_each_table sets.
template <class Slot>
struct SlotTable {
  static constexpr std::size_t kCapacity = (kTableBytes - sizeof(std::int64_t)) / sizeof(Slot);
  Slot slots[kCapacity];
  int count;
};

/// Cuts every slot into pieces of kPieceElements, a block for each, and calls f(table, blocks) for each
/// launch that it takes.
template <int kPieceElements, class Slot, class F>
void for_each_table(const std::vector<Slot>& slots, F f) {
  using Table = SlotTable<Slot>;
  static_assert(sizeof(Table) <= kTableBytes);
  Table table{};
  unsigned blocks = 0;
  for (const Slot& slot : slots) {
    if (slot.numel == 0) continue;
    if (table.count == static_cast<int>(Table::kCapacity)) {
      f(table, blocks);
      table.count = 0;
      blocks = 0;
    }
    table.slots[table.count] = slot;
    table.slots[table.count].first_block = blocks;
    ++table.count;
    blocks += blocks_for(slot.numel, kPieceElements);
  }
  if (table.count > 0) f(table, blocks);
}

/// What a block works on: `count` elements of a slot, from `begin` on.
struct Piece {
  int slot;
  int count;
  std::int64_t begin;
};

/// By bisection: all threads of a block read the same few entries, which the constant cache serves.
template <int kPieceElements, class Slot>
__device__ Piece piece_of_block(const SlotTable<Slot>& table) {
  int slot = 0;
  for (int end = table.count; end - slot > 1;) {
    const int middle = (slot + end) / 2;
    if (table.slots[middle].first_block <= blockIdx.x) {
      slot = middle;
    } else {
      end = middle;
    }
  }
  const std::int64_t begin = std::int64_t{blockIdx.x - table.slots[slot].first_block} * kPieceElements;
  const std::int64_t left = table.slots[slot].numel - begin;
  return {
      .slot = slot, .count = static_cast<int>(left < kPieceElements ? left : kPieceElements), .begin = begin};
}

/// is_aligned, asked by a kernel: of each slot, where the host would have to ask it for a whole table.
__device__ inline bool packs_may_begin(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0;
}

}  // namespace convoy::cuda

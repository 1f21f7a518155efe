// One launch over many arrays. The table of arrays is a kernel parameter: nothing is copied to the device or
// allocated there, and a captured CUDA graph contains the table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels::cuda {

/// Maximum size of a table. Every GPU supports 4 KiB of kernel parameters; the rest is for the other
/// parameters.
inline constexpr std::size_t kTableBytes = 4096 - 128;

/// A table of slots, passed to a kernel by value. A Slot has pointers to arrays that belong together and
/// their number of elements, `numel`. for_each_table() sets `first_block`, the index of the first block that
/// works on the slot.
template <class Slot>
struct SlotTable {
  static constexpr std::size_t kCapacity = (kTableBytes - sizeof(std::int64_t)) / sizeof(Slot);
  Slot slots[kCapacity];
  int count;
};

/// Splits every slot into pieces of kPieceElements, one per block. Calls f(table, blocks) for each launch
/// that is needed.
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

/// The work of a block: `count` elements of slot `slot`, from index `begin` on.
struct Piece {
  int slot;
  int count;
  std::int64_t begin;
};

/// Returns the piece of this block. Uses a binary search: all threads of the block read the same few entries,
/// which the constant cache serves.
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

}  // namespace convoy::kernels::cuda

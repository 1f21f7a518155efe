// What a rank says of a collective before it takes part: ranks that do not do the same thing must not sum.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/runtime/dtype.h"

namespace convoy {

enum class CollectiveOp : std::uint8_t {
  all_reduce,
  broadcast,
  reduce_scatter,
  all_gather,
  barrier,
  gather,
  split,
  finish
};

/// The fingerprint of one collective of a communicator: equal on all ranks, or the program is wrong.
struct Collective {
  std::uint64_t number = 0;  // from 0, in the order of launches on this communicator
  CollectiveOp op = CollectiveOp::barrier;
  DType dtype = DType::u8;
  std::int32_t root = 0;
  std::int64_t count = 0;  // elements, of what each rank brings; 0 for barrier, gather, split and finish

  friend bool operator==(const Collective&, const Collective&) = default;
};

/// "all-reduce 417 (1024 f32)", "broadcast 3 (10 i32 from rank 1)", "barrier 5".
std::string text_of(const Collective& collective);

/// PeerError with the first two fingerprints that differ, and whose they are.
void check_same(std::span<const Collective> by_rank);

}  // namespace convoy

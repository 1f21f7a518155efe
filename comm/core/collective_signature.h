// The signature of a collective, which ranks compare before they exchange data.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "convoy/kernels/base/dtype.h"

namespace convoy::dist {

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

/// The signature of one collective of a communicator. It must be equal on all ranks.
struct CollectiveSignature {
  /// Sequence number on this communicator, from 0, in launch order.
  std::uint64_t number = 0;
  CollectiveOp op = CollectiveOp::barrier;
  DType dtype = DType::u8;
  std::int32_t root = 0;
  /// Number of elements that each rank contributes; 0 for barrier, gather, split and finish.
  std::int64_t count = 0;

  friend bool operator==(const CollectiveSignature&, const CollectiveSignature&) = default;
};

/// Returns a description for messages: "all-reduce 417 (1024 f32)", "broadcast 3 (10 i32 from rank 1)",
/// "barrier 5".
std::string to_string(const CollectiveSignature& collective);

/// Throws PeerError if the signatures, indexed by rank, are not all equal. The message lists each distinct
/// signature with its ranks.
void verify_consistency(std::span<const CollectiveSignature> by_rank);

}  // namespace convoy::dist

// A collective: its signature, which ranks compare before they exchange data, its observer and its errors. All
// functions are thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "convoy/kernels/base/dtype.h"
#include "convoy/kernels/base/error.h"

namespace convoy::dist {

/// A function of Communicator.
enum class CollectiveOp : std::uint8_t {
  all_reduce,      // Communicator::all_reduce()
  broadcast,       // Communicator::broadcast()
  reduce_scatter,  // Communicator::reduce_scatter()
  all_gather,      // Communicator::all_gather()
  barrier,         // Communicator::barrier()
  gather,          // Communicator::gather_object()
  split,           // Communicator::split()
  finish           // Communicator::finish()
};

/// The signature of one collective of a communicator. It must be equal on all ranks.
struct CollectiveSignature {
  /// Sequence number on this communicator, from 0, in launch order.
  std::uint64_t number = 0;
  CollectiveOp op = CollectiveOp::barrier;  // the function
  DType dtype = DType::u8;                  // of the elements; u8 for functions without elements
  std::int16_t bucket = -1;                 // of gradients (Communicator::set_bucket()); -1: none
  std::int32_t root = 0;                    // of a broadcast; the AllReduce of other functions with elements
  /// Number of elements that each rank contributes; 0 for barrier, gather, split and finish.
  std::int64_t count = 0;

  /// Compares all members.
  friend bool operator==(const CollectiveSignature&, const CollectiveSignature&) = default;
};

/// Returns a description for messages: "all-reduce 417 (1024 f32)", "all-reduce 418 (1024 f32) by ring, bucket 3",
/// "broadcast 3 (10 i32 from rank 1)", "barrier 5".
std::string to_string(const CollectiveSignature& collective);

/// Throws PeerError if the signatures, indexed by rank, are not all equal. The message lists each distinct
/// signature with its ranks.
void verify_consistency(std::span<const CollectiveSignature> by_rank);

/// Observes the collectives of one communicator on one rank. Several threads may call it at the same time.
/// The functions take well under a microsecond and do not throw: they are part of every collective.
class CollectiveMonitor {
 public:
  virtual ~CollectiveMonitor() = default;
  CollectiveMonitor() = default;
  CollectiveMonitor(const CollectiveMonitor&) = delete;
  CollectiveMonitor& operator=(const CollectiveMonitor&) = delete;

  /// The rank has launched the collective: it is enqueued on the communication stream.
  virtual void launched(const CollectiveSignature& collective) noexcept = 0;
  /// The communication stream has reached the collective: the rank waits for the other ranks.
  virtual void started(const CollectiveSignature& collective) noexcept = 0;
  /// The collective that this rank is in makes progress: messages have arrived, or were sent.
  virtual void progressed() noexcept = 0;
  /// The collective has completed on this rank.
  virtual void completed(const CollectiveSignature& collective) noexcept = 0;
};

/// Returns "rank 2", "ranks 0, 2, 3" or "ranks 0 to 15, 17".
std::string format_ranks(std::span<const int> ranks);

/// The failure of another rank, in the words of that rank.
struct ForwardedError : PeerError {
  using PeerError::PeerError;
};

/// Bytes that have changed on their way from one rank to another one, or sums that are not equal on all
/// ranks. Unlike other peer errors it is a cause: it follows from no failure of another rank.
struct CorruptionError : PeerError {
  using PeerError::PeerError;
};

}  // namespace convoy::dist

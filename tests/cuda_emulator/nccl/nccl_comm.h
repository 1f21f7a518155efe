// A communicator of the emulated NCCL: its state, and its collectives as operations of a stream.
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulator/runtime/driver.h"
#include "tests/cuda_emulator/nccl/nccl_rendezvous.h"
#include "tests/cuda_emulator/vendor/vendor_state.h"

namespace convoy::emulator {

enum class NcclOp : std::int32_t { all_reduce, broadcast, reduce_scatter, all_gather };

/// The arguments of one collective.
struct NcclCall {
  NcclOp op = NcclOp::all_reduce;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;  // elements that a rank contributes; for a reduce-scatter, that it receives
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t reduction = ncclSum;
  int root = 0;
};

/// Returns the size of an element, or 0 for an unknown type.
std::size_t size_of(ncclDataType_t type);

/// The state that a communicator shares with its collectives on streams, which may outlive it. Protected by
/// the driver's lock, like everything here.
struct NcclState {
  NcclState(const ncclUniqueId& id, int rank, int ranks, int on_gpu)
      : rendezvous(id, rank, ranks, on_gpu), gpu(on_gpu) {}

  NcclRendezvous rendezvous;
  int gpu;
  std::uint64_t chunks = 0;          // begun by this rank
  std::uint64_t collectives = 0;     // begun by this rank
  std::int64_t sums = 0;             // all-reduces of which this rank has taken the first chunk
  int unfinished = 0;                // collectives launched on streams that are not captured
  ncclResult_t error = ncclSuccess;  // an error of the library: no progress any more
  bool is_aborted = false;           // waiting collectives end
  bool is_finalizing = false;
  /// Each captured collective has a copy, which exists as long as its graph.
  std::shared_ptr<void> graph_reference = std::make_shared<char>();

  /// Returns whether a graph that is captured, not destroyed, or still queued contains a collective.
  bool is_captured() const { return graph_reference.use_count() > 1; }
  /// Marks this rank as finalized once ncclCommFinalize was called and all collectives have ended.
  void publish_finalized() {
    if (is_finalizing && unfinished == 0) rendezvous.local().is_finalized = 1;
  }
};

/// A collective in progress, processed chunk by chunk. There is one per launch, or one per node of a graph.
class NcclWork {
 public:
  NcclWork(std::shared_ptr<NcclState> state, const NcclCall& call);

  /// Processes as many chunks as the peers permit. Returns true when the collective has ended.
  bool advance(Driver& driver);

 private:
  bool post(Driver& driver);
  bool is_shared() const;
  void take(Driver& driver);
  void copy_in(std::byte* to, std::size_t begin, std::size_t count) const;
  void copy_out(std::size_t begin, std::size_t count) const;
  void sum(std::byte* to, std::size_t offset, std::size_t count) const;
  void finish();

  std::shared_ptr<NcclState> state_;
  NcclCall call_;
  std::size_t chunk_elements_;  // elements per rank in one chunk
  std::size_t chunk_ = 0;
  std::uint64_t number_ = 0, collective_number_ = 0;  // sequence numbers
  bool is_begun_ = false, is_posted_ = false;
};

}  // namespace convoy::emulator

/// The object behind an ncclComm_t.
struct ncclComm {
  /// The state of the latest call. It is complete after `polls` more polls, not before `connected`.
  enum class Stage : std::uint8_t { initializing, idle, launching, finalizing, finalized };

  std::shared_ptr<convoy::emulator::NcclState> state;
  Stage stage = Stage::initializing;
  int polls = 0;
  std::chrono::steady_clock::time_point connected = {};
  bool has_launched = false;  // the first collective makes connections

  // The collective being launched, its stream, and the capture of that stream at the time of the call.
  convoy::emulator::NcclCall call = {};
  cudaStream_t stream = nullptr;
  std::shared_ptr<convoy::emulator::Capture> capture = nullptr;

  /// Returns the state of the latest call. Each poll advances it.
  ncclResult_t poll(convoy::emulator::Driver& driver);

 private:
  bool is_complete(convoy::emulator::Driver& driver);
  void launch(convoy::emulator::Driver& driver);
};

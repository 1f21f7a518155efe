// A communicator of the emulated NCCL: what it is in the middle of, and its collectives as work of a stream.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_emulator/driver.h"
#include "tests/cuda_emulator/nccl_meeting.h"
#include "tests/cuda_emulator/vendor_state.h"

namespace convoy::emulator {

enum class NcclOp : std::int32_t { all_reduce, broadcast, reduce_scatter, all_gather };

struct NcclCall {
  NcclOp op = NcclOp::all_reduce;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;  // elements that a rank brings; of a reduce-scatter, that it takes
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t reduction = ncclSum;
  int root = 0;
};

std::size_t size_of(ncclDataType_t type);

/// What collectives on streams share with the communicator, and keep when it has gone. Under the driver's
/// lock, as all here.
struct NcclState {
  NcclState(const ncclUniqueId& id, int rank, int ranks, int on_gpu)
      : meeting(id, rank, ranks, on_gpu), gpu(on_gpu) {}

  NcclMeeting meeting;
  int gpu;
  std::uint64_t chunks = 0;          // that this rank has begun with
  std::uint64_t collectives = 0;     // the same
  int unfinished = 0;                // collectives, launched on streams that do not record
  ncclResult_t error = ncclSuccess;  // found by the library itself: nothing moves any more
  bool is_aborted = false;           // what waits ends
  bool is_finalizing = false;

  /// Tells the others when it has nothing more to do.
  void settle() {
    if (is_finalizing && unfinished == 0) meeting.mine().is_finalized = 1;
  }
};

/// A collective where it stands: one run of it from chunk to chunk. In a graph, one for each node.
class NcclWork {
 public:
  NcclWork(std::shared_ptr<NcclState> state, const NcclCall& call);

  /// Goes on as far as the other ranks let it; true when the end has come.
  bool go_on(Driver& driver);

 private:
  bool post(Driver& driver);
  bool is_everybodys() const;
  void take(Driver& driver);
  void copy_in(std::byte* to, std::size_t begin, std::size_t count) const;
  void copy_out(std::size_t begin, std::size_t count) const;
  void sum(std::byte* to, std::size_t offset, std::size_t count) const;
  void finish();

  std::shared_ptr<NcclState> state_;
  NcclCall call_;
  std::size_t of_chunk_;  // elements of a rank's part
  std::size_t chunk_ = 0;
  std::uint64_t number_ = 0, words_number_ = 0;  // of the chunk, of the collective
  bool is_begun_ = false, is_posted_ = false;
};

}  // namespace convoy::emulator

/// What the handle points to.
struct ncclComm {
  /// Where the latest call stands: not through before so many questions were asked.
  enum class Stage : std::uint8_t { initializing, idle, launching, finalizing, finalized };

  std::shared_ptr<convoy::emulator::NcclState> state;
  Stage stage = Stage::initializing;
  int questions = 0;

  // What is being launched, and the recording that its stream was part of when it was called for.
  convoy::emulator::NcclCall call = {};
  cudaStream_t stream = nullptr;
  std::shared_ptr<convoy::emulator::Capture> capture = nullptr;

  /// The latest call's state, which asking for it moves on.
  ncclResult_t ask(convoy::emulator::Driver& driver);

 private:
  bool is_through(convoy::emulator::Driver& driver);
  void launch(convoy::emulator::Driver& driver);
};

#include "tests/cuda_emulator/nccl_comm.h"

#include <algorithm>
#include <cstring>

#include "tests/cuda_emulator/nccl_emulation.h"
#include "tests/cuda_emulator/nccl_sums.h"

namespace convoy::emulator {

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    case ncclFloat64: return 8;
  }
  return 0;
}

NcclWork::NcclWork(std::shared_ptr<NcclState> state, const NcclCall& call)
    : state_(std::move(state)), call_(call) {
  const std::size_t parts =
      call.op == NcclOp::reduce_scatter ? static_cast<std::size_t>(state_->meeting.ranks()) : 1;
  of_chunk_ = NcclMeeting::kChunkBytes / parts / size_of(call.type);
}

bool NcclWork::go_on(Driver& driver) {
  while (!state_->is_aborted && chunk_ * of_chunk_ < call_.count) {
    if (state_->error != ncclSuccess) return false;
    if (!post(driver) || !is_everybodys()) return false;
    take(driver);
    ++chunk_;
    is_posted_ = false;
  }
  finish();
  return true;
}

/// Puts this rank's part where the others find it; false as long as a buffer is not free.
bool NcclWork::post(Driver& driver) {
  if (is_posted_) return true;
  NcclMeeting& meeting = state_->meeting;
  if (!is_begun_) words_number_ = state_->collectives++;
  is_begun_ = true;
  const std::uint64_t next = meeting.mine().posted;
  if (!meeting.all([&](const NcclSeat& seat) { return seat.taken + NcclSeat::kBuffers > next; }))
    return false;
  number_ = next;
  const std::size_t begin = chunk_ * of_chunk_;
  driver.memory.open(state_->gpu);
  copy_in(meeting.buffer(meeting.rank(), number_), begin, std::min(of_chunk_, call_.count - begin));
  driver.memory.close(state_->gpu);
  meeting.mine().words[number_ % NcclSeat::kBuffers] = {.op = static_cast<std::int32_t>(call_.op),
                                                        .type = call_.type,
                                                        .reduction = call_.reduction,
                                                        .root = call_.root,
                                                        .count = call_.count,
                                                        .number = words_number_};
  meeting.mine().posted = number_ + 1;
  is_posted_ = true;
  return true;
}

/// Whether all ranks have come, and with the same words. Where they have not, nothing is found out here.
bool NcclWork::is_everybodys() const {
  const NcclMeeting& meeting = state_->meeting;
  const std::size_t buffer = number_ % NcclSeat::kBuffers;
  return meeting.all([&](const NcclSeat& seat) {
    return seat.posted > number_;
  }) && meeting.all([&](const NcclSeat& seat) { return seat.words[buffer] == meeting.mine().words[buffer]; });
}

void NcclWork::take(Driver& driver) {
  const std::size_t begin = chunk_ * of_chunk_;
  driver.memory.open(state_->gpu);
  copy_out(begin, std::min(of_chunk_, call_.count - begin));
  driver.memory.close(state_->gpu);
  state_->meeting.mine().taken = number_ + 1;
}

void NcclWork::copy_in(std::byte* to, std::size_t begin, std::size_t count) const {
  const NcclMeeting& meeting = state_->meeting;
  const std::size_t size = size_of(call_.type);
  if (call_.op == NcclOp::broadcast && meeting.rank() != call_.root) return;
  // A reduce-scatter brings a part for each rank.
  const int parts = call_.op == NcclOp::reduce_scatter ? meeting.ranks() : 1;
  for (int part = 0; part < parts; ++part) {
    const auto index = static_cast<std::size_t>(part);
    std::memcpy(to + index * of_chunk_ * size, call_.in + (index * call_.count + begin) * size, count * size);
  }
}

void NcclWork::copy_out(std::size_t begin, std::size_t count) const {
  const NcclMeeting& meeting = state_->meeting;
  const std::size_t size = size_of(call_.type);
  std::byte* const to = call_.out + begin * size;
  switch (call_.op) {
    case NcclOp::all_reduce: return sum(to, 0, count);
    case NcclOp::reduce_scatter:
      return sum(to, static_cast<std::size_t>(meeting.rank()) * of_chunk_ * size, count);
    case NcclOp::broadcast: std::memcpy(to, meeting.buffer(call_.root, number_), count * size); return;
    case NcclOp::all_gather:
      for (int rank = 0; rank < meeting.ranks(); ++rank)
        std::memcpy(to + static_cast<std::size_t>(rank) * call_.count * size, meeting.buffer(rank, number_),
                    count * size);
  }
}

/// As around a ring, which each chunk enters at another rank; rounded after each addition.
void NcclWork::sum(std::byte* to, std::size_t offset, std::size_t count) const {
  const NcclMeeting& meeting = state_->meeting;
  const int first = static_cast<int>(chunk_ % static_cast<std::size_t>(meeting.ranks()));
  for (int step = 0; step < meeting.ranks(); ++step) {
    const std::byte* const part = meeting.buffer((first + step) % meeting.ranks(), number_) + offset;
    if (step == 0) {
      std::memcpy(to, part, count * size_of(call_.type));
    } else {
      add_elements(call_.type, to, part, count);
    }
  }
}

void NcclWork::finish() {
  count_nccl_collective();
  chunk_ = 0;
  is_begun_ = is_posted_ = false;
}

}  // namespace convoy::emulator

using namespace convoy::emulator;  // NOLINT: ncclComm is C's

ncclResult_t ncclComm::ask(Driver& driver) {
  if (state->error != ncclSuccess) return state->error;
  if (stage == Stage::idle || stage == Stage::finalized) return ncclSuccess;
  if (!is_through(driver)) return state->error != ncclSuccess ? state->error : ncclInProgress;
  stage = stage == Stage::finalizing ? Stage::finalized : Stage::idle;
  return ncclSuccess;
}

bool ncclComm::is_through(Driver& driver) {
  NcclMeeting& meeting = state->meeting;
  if (stage == Stage::initializing) {
    if (!meeting.everyone_came()) return false;
    if (const auto [first, second] = meeting.doubled_gpu(); first != second) {
      state->error = ncclInvalidUsage;
      set_nccl_error("Duplicate GPU detected : rank " + std::to_string(first) + " and rank " +
                     std::to_string(second) + " both on CUDA device " + std::to_string(state->gpu));
      return false;
    }
  }
  if (stage == Stage::finalizing && !meeting.all([](const NcclSeat& seat) { return seat.is_finalized != 0; }))
    return false;
  if (questions-- > 0) return false;
  if (stage == Stage::launching) launch(driver);
  return state->error == ncclSuccess;
}

void ncclComm::launch(Driver& driver) {
  EmulatedStream* const held = driver.find(stream);
  if (held == nullptr || held->capture != capture) {
    state->error = ncclInvalidUsage;
    set_nccl_error("the stream, or its recording, ended before the collective was launched");
    return;
  }
  const auto work = std::make_shared<NcclWork>(state, call);
  if (capture != nullptr) {
    driver.attempt(*held, [&driver, work] { return work->go_on(driver); });
    return;
  }
  ++state->unfinished;
  driver.attempt(*held, [&driver, work, shared = state] {
    if (!work->go_on(driver)) return false;
    --shared->unfinished;
    shared->settle();
    return true;
  });
}

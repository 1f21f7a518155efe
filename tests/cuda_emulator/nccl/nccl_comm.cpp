#include "tests/cuda_emulator/nccl/nccl_comm.h"

#include <algorithm>
#include <cstring>

#include "emulator/runtime/environment.h"
#include "tests/cuda_emulator/nccl/nccl_emulation.h"
#include "tests/cuda_emulator/nccl/nccl_sums.h"

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

namespace {

/// Returns the number of the all-reduce in whose result this process flips a bit (README.md); -1: none.
std::int64_t flipped_sum() {
  static const auto sum = number("CONVOY_EMULATED_FLIP", std::int64_t{-1});
  return sum;
}

}  // namespace

NcclWork::NcclWork(std::shared_ptr<NcclState> state, const NcclCall& call)
    : state_(std::move(state)), call_(call) {
  const std::size_t parts =
      call.op == NcclOp::reduce_scatter ? static_cast<std::size_t>(state_->rendezvous.ranks()) : 1;
  chunk_elements_ = NcclRendezvous::kChunkBytes / parts / size_of(call.type);
}

bool NcclWork::advance(Driver& driver) {
  while (!state_->is_aborted && chunk_ * chunk_elements_ < call_.count) {
    if (state_->error != ncclSuccess) return false;
    if (!post(driver) || !is_shared()) return false;
    take(driver);
    ++chunk_;
    is_posted_ = false;
  }
  finish();
  return true;
}

/// Copies this rank's part of the chunk to its buffer and publishes it. Returns false while no buffer is
/// free.
bool NcclWork::post(Driver& driver) {
  if (is_posted_) return true;
  NcclRendezvous& rendezvous = state_->rendezvous;
  if (!is_begun_) collective_number_ = state_->collectives++;
  is_begun_ = true;
  const std::uint64_t next = rendezvous.local().posted;
  if (!rendezvous.all([&](const NcclSlot& slot) { return slot.taken + NcclSlot::kBuffers > next; }))
    return false;
  number_ = next;
  const std::size_t begin = chunk_ * chunk_elements_;
  driver.memory.open(state_->gpu);
  copy_in(rendezvous.buffer(rendezvous.rank(), number_), begin,
          std::min(chunk_elements_, call_.count - begin));
  driver.memory.close(state_->gpu);
  rendezvous.local().signatures[number_ % NcclSlot::kBuffers] = {.op = static_cast<std::int32_t>(call_.op),
                                                                 .type = call_.type,
                                                                 .reduction = call_.reduction,
                                                                 .root = call_.root,
                                                                 .count = call_.count,
                                                                 .number = collective_number_};
  rendezvous.local().posted = number_ + 1;
  is_posted_ = true;
  return true;
}

/// Returns whether all ranks have published the chunk with the same signature. A mismatch is not reported:
/// the collective hangs, as in NCCL.
bool NcclWork::is_shared() const {
  const NcclRendezvous& rendezvous = state_->rendezvous;
  const std::size_t buffer = number_ % NcclSlot::kBuffers;
  return rendezvous.all([&](const NcclSlot& slot) { return slot.posted > number_; }) &&
         rendezvous.all([&](const NcclSlot& slot) {
           return slot.signatures[buffer] == rendezvous.local().signatures[buffer];
         });
}

void NcclWork::take(Driver& driver) {
  const std::size_t begin = chunk_ * chunk_elements_;
  driver.memory.open(state_->gpu);
  copy_out(begin, std::min(chunk_elements_, call_.count - begin));
  if (call_.op == NcclOp::all_reduce && chunk_ == 0 && state_->sums++ == flipped_sum())
    *call_.out ^= std::byte{1};
  driver.memory.close(state_->gpu);
  state_->rendezvous.local().taken = number_ + 1;
}

void NcclWork::copy_in(std::byte* to, std::size_t begin, std::size_t count) const {
  const NcclRendezvous& rendezvous = state_->rendezvous;
  const std::size_t size = size_of(call_.type);
  if (call_.op == NcclOp::broadcast && rendezvous.rank() != call_.root) return;
  // A reduce-scatter contributes one part per rank.
  const int parts = call_.op == NcclOp::reduce_scatter ? rendezvous.ranks() : 1;
  for (int part = 0; part < parts; ++part) {
    const auto index = static_cast<std::size_t>(part);
    std::memcpy(to + index * chunk_elements_ * size, call_.in + (index * call_.count + begin) * size,
                count * size);
  }
}

void NcclWork::copy_out(std::size_t begin, std::size_t count) const {
  const NcclRendezvous& rendezvous = state_->rendezvous;
  const std::size_t size = size_of(call_.type);
  std::byte* const to = call_.out + begin * size;
  switch (call_.op) {
    case NcclOp::all_reduce: return sum(to, 0, count);
    case NcclOp::reduce_scatter:
      return sum(to, static_cast<std::size_t>(rendezvous.rank()) * chunk_elements_ * size, count);
    case NcclOp::broadcast: std::memcpy(to, rendezvous.buffer(call_.root, number_), count * size); return;
    case NcclOp::all_gather:
      for (int rank = 0; rank < rendezvous.ranks(); ++rank)
        std::memcpy(to + static_cast<std::size_t>(rank) * call_.count * size,
                    rendezvous.buffer(rank, number_), count * size);
  }
}

/// Adds in ring order, starting at another rank for each chunk. Rounds after each addition.
void NcclWork::sum(std::byte* to, std::size_t offset, std::size_t count) const {
  const NcclRendezvous& rendezvous = state_->rendezvous;
  const int first = static_cast<int>(chunk_ % static_cast<std::size_t>(rendezvous.ranks()));
  for (int step = 0; step < rendezvous.ranks(); ++step) {
    const std::byte* const part = rendezvous.buffer((first + step) % rendezvous.ranks(), number_) + offset;
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

using namespace convoy::emulator;  // NOLINT: ncclComm is a name of the C API

ncclResult_t ncclComm::poll(Driver& driver) {
  if (state->error != ncclSuccess) return state->error;
  if (stage == Stage::idle || stage == Stage::finalized) return ncclSuccess;
  if (!is_complete(driver)) return state->error != ncclSuccess ? state->error : ncclInProgress;
  stage = stage == Stage::finalizing ? Stage::finalized : Stage::idle;
  return ncclSuccess;
}

bool ncclComm::is_complete(Driver& driver) {
  NcclRendezvous& rendezvous = state->rendezvous;
  if (stage == Stage::initializing) {
    if (!rendezvous.all_joined()) return false;
    if (const auto [first, second] = rendezvous.shared_gpu(); first != second) {
      state->error = ncclInvalidUsage;
      set_nccl_error("Duplicate GPU detected : rank " + std::to_string(first) + " and rank " +
                     std::to_string(second) + " both on CUDA device " + std::to_string(state->gpu));
      return false;
    }
  }
  if (stage == Stage::finalizing &&
      (state->is_captured() || !rendezvous.all([](const NcclSlot& slot) { return slot.is_finalized != 0; })))
    return false;
  if (std::chrono::steady_clock::now() < connected) return false;
  if (polls-- > 0) return false;
  if (stage == Stage::launching) launch(driver);
  return state->error == ncclSuccess;
}

void ncclComm::launch(Driver& driver) {
  EmulatedStream* const held = driver.find(stream);
  if (held == nullptr || held->capture != capture) {
    state->error = ncclInvalidUsage;
    set_nccl_error("the stream or its capture ended before the collective was launched");
    return;
  }
  const auto work = std::make_shared<NcclWork>(state, call);
  if (capture != nullptr) {
    driver.attempt(*held,
                   [&driver, work, reference = state->graph_reference] { return work->advance(driver); });
    return;
  }
  ++state->unfinished;
  driver.attempt(*held, [&driver, work, shared = state] {
    if (!work->advance(driver)) return false;
    --shared->unfinished;
    shared->publish_finalized();
    return true;
  });
}

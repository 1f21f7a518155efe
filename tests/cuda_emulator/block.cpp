#include "tests/cuda_emulator/block.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>

#include "tests/cuda_emulator/sanitizer.h"

namespace convoy {

// What shared_memory() of kernels/cuda/launch.h declares (it stands inside a function of convoy::cuda, which
// makes it a member of that namespace). Of one block at a time; what a launch did not ask for is poisoned.
namespace cuda {
constexpr std::size_t kSharedCapacity = std::size_t{48} << 10;
alignas(256) unsigned char block_shared_bytes[kSharedCapacity];
}  // namespace cuda

namespace emulator {
using cuda::block_shared_bytes;
using cuda::kSharedCapacity;
namespace {

std::string text(uint3 v) {
  return "(" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) + ")";
}

std::string text(Where where) {
  const std::string_view path = where.file_name();
  return std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(where.line());
}

bool same_place(Where a, Where b) {
  return a.line() == b.line() && a.column() == b.column() && std::string_view(a.file_name()) == b.file_name();
}

/// Not the bytes of any sensible number: a float of them is -3.8e38 … NaN, an int is negative.
constexpr int kUninitialized = 0xff;

}  // namespace

uint3 BlockRunner::index_in(dim3 size, unsigned linear) const {
  return {linear % size.x, linear / size.x % size.y, linear / size.x / size.y};
}

std::string BlockRunner::position() const {
  return "block " + text(blockIdx) + ", thread " + text(index_in(launch_->block, current_));
}

void BlockRunner::fault(const std::string& what, Where where) const {
  throw KernelFault(text(where) + ": " + position() + ": " + what);
}

std::vector<unsigned> BlockRunner::in_order(unsigned count) {
  std::vector<unsigned> all(count);
  std::iota(all.begin(), all.end(), 0u);
  if (order_ == Order::descending) std::reverse(all.begin(), all.end());
  if (order_ == Order::random) std::shuffle(all.begin(), all.end(), *random_);
  return all;
}

void BlockRunner::run(const Launch& launch, Order order, std::mt19937_64& random) {
  launch_ = &launch;
  order_ = order;
  random_ = &random;
  gridDim = launch.grid;
  blockDim = launch.block;
  unpoison(block_shared_bytes, kSharedCapacity);
  poison(block_shared_bytes + launch.shared_bytes, kSharedCapacity - launch.shared_bytes);
  for (const unsigned block : in_order(launch.grid.x * launch.grid.y * launch.grid.z)) {
    blockIdx = index_in(launch.grid, block);
    std::memset(block_shared_bytes, kUninitialized, launch.shared_bytes);
    run_block();
  }
}

void BlockRunner::run_block() {
  const unsigned count = launch_->block.x * launch_->block.y * launch_->block.z;
  threads_.assign(count, {});
  meetings_.assign((count + 31) / 32, {});
  at_barrier_ = 0;
  fault_.clear();
  queue_.clear();
  for (const unsigned thread : in_order(count)) queue_.push_back(thread);
  while (!queue_.empty() && fault_.empty()) {
    const unsigned thread = queue_.front();
    queue_.pop_front();
    enter(thread);
  }
  if (fault_.empty()) fault_ = describe_waiting();
  if (fault_.empty()) return;
  abandon();
  throw KernelFault(fault_);
}

/// Goes on with a thread, on the fiber that holds it or on a free one.
void BlockRunner::enter(unsigned thread) {
  current_ = thread;
  running_ = std::exchange(threads_[thread].fiber, nullptr);
  if (running_ == nullptr) {
    if (free_fibers_.empty()) {
      const std::size_t index = fibers_.size();
      fibers_.push_back(std::make_unique<Fiber>([this, index] { run_fiber(index); }));
      free_fibers_.push_back(fibers_.back().get());
    }
    running_ = free_fibers_.back();
    free_fibers_.pop_back();
  } else {
    threads_[thread].status = Status::ready;
    threadIdx = index_in(launch_->block, thread);
  }
  running_->enter();
}

/// A fiber runs threads to their end, one after the other, as long as the next in the queue is a fresh one: a
/// kernel that never waits needs one fiber and no switch.
void BlockRunner::run_fiber(std::size_t index) {
  while (true) {
    threadIdx = index_in(launch_->block, current_);
    threads_[current_].status = Status::ready;
    try {
      launch_->thread();
      threads_[current_].status = Status::ended;
    } catch (const KernelFault& caught) {
      fault_ = caught.what();
    }
    if (fault_.empty() && !queue_.empty() && threads_[queue_.front()].status == Status::fresh) {
      current_ = queue_.front();
      queue_.pop_front();
      continue;
    }
    free_fibers_.push_back(fibers_[index].get());
    fibers_[index]->leave();
  }
}

void BlockRunner::wait_as(Status status, Where where) {
  threads_[current_] = {.status = status, .fiber = running_, .where = where};
}

void BlockRunner::release(std::vector<unsigned> threads) {
  for (const unsigned thread : threads) threads_[thread].status = Status::ready;
  if (order_ == Order::descending) std::reverse(threads.begin(), threads.end());
  if (order_ == Order::random) std::shuffle(threads.begin(), threads.end(), *random_);
  queue_.insert(queue_.end(), threads.begin(), threads.end());
}

void BlockRunner::barrier(Where where) {
  for (const Thread& other : threads_)
    if (other.status == Status::at_barrier) {
      if (!same_place(other.where, where))
        fault(
            "__syncthreads() here, while other threads of the block wait in the one at " + text(other.where),
            where);
      break;
    }
  wait_as(Status::at_barrier, where);
  if (++at_barrier_ == threads_.size()) {
    at_barrier_ = 0;
    std::vector<unsigned> all(threads_.size());
    std::iota(all.begin(), all.end(), 0u);
    release(std::move(all));
  }
  running_->leave();
}

const std::uint64_t* BlockRunner::meet(unsigned mask, std::uint64_t bits, Where where) {
  const unsigned warp = current_ / 32;
  if ((mask >> lane() & 1u) == 0) fault("lane " + std::to_string(lane()) + " is not in its own mask", where);
  const auto in_warp = static_cast<unsigned>(std::min<std::size_t>(32, threads_.size() - warp * 32));
  if (in_warp < 32 && mask >> in_warp != 0)
    fault("the mask names lanes that are not there: the block has " + std::to_string(threads_.size()) +
              " threads",
          where);

  std::vector<Meeting>& meetings = meetings_[warp];
  auto found =
      std::find_if(meetings.begin(), meetings.end(), [&](const Meeting& m) { return m.mask == mask; });
  if (found == meetings.end()) found = meetings.insert(meetings.end(), Meeting{.mask = mask, .where = where});
  if (found->arrived != 0 && !same_place(found->where, where))
    fault("a warp operation here, while other lanes of its mask wait in the one at " + text(found->where),
          where);
  found->where = where;
  found->arrived |= 1u << lane();
  const unsigned turn = found->turn;
  found->values[turn][lane()] = bits;
  wait_as(Status::in_meeting, where);
  if (found->arrived == mask) {
    found->arrived = 0;
    found->turn ^= 1u;
    std::vector<unsigned> lanes;
    for (unsigned l = 0; l < 32; ++l)
      if ((mask >> l & 1u) != 0) lanes.push_back(warp * 32 + l);
    release(std::move(lanes));
  }
  running_->leave();
  // Looked up again: another mask's first meeting may have moved the vector meanwhile.
  for (const Meeting& meeting : meetings_[warp])
    if (meeting.mask == mask) return meeting.values[turn].data();
  return nullptr;
}

/// No thread can go on: "" where all have ended, else who waits where.
std::string BlockRunner::describe_waiting() const {
  const auto is = [this](Status status) {
    return [status](const Thread& thread) { return thread.status == status; };
  };
  const auto count = [&](Status status) {
    return std::count_if(threads_.begin(), threads_.end(), is(status));
  };
  const auto ended = count(Status::ended);
  if (static_cast<std::size_t>(ended) == threads_.size()) return "";
  const bool barrier = at_barrier_ > 0;
  const auto waiting =
      std::find_if(threads_.begin(), threads_.end(), is(barrier ? Status::at_barrier : Status::in_meeting));
  const auto missing = std::find_if(threads_.begin(), threads_.end(),
                                    [&](const Thread& thread) { return thread.status != waiting->status; });
  std::string what = text(waiting->where) + ": block " + text(blockIdx) + ": " +
                     std::to_string(count(waiting->status)) + " of " + std::to_string(threads_.size()) +
                     (barrier ? " threads wait at __syncthreads()" : " threads wait at a warp operation") +
                     ", ";
  what += std::to_string(ended) + " have ended";
  if (missing != threads_.end()) {
    const auto thread = static_cast<unsigned>(missing - threads_.begin());
    what += "; thread " + text(index_in(launch_->block, thread));
    what += missing->status == Status::ended ? " has ended" : " waits at " + text(missing->where);
  }
  return what;
}

void BlockRunner::abandon() {
  free_fibers_.clear();
  for (const auto& fiber : fibers_) {
    fiber->abandon();
    free_fibers_.push_back(fiber.get());
  }
}

}  // namespace emulator
}  // namespace convoy

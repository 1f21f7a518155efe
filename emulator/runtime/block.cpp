#include "emulator/runtime/block.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include "emulator/checking/access_checker.h"
#include "emulator/checking/own_code.h"
#include "emulator/counting/formatted.h"
#include "emulator/runtime/sanitizer.h"

namespace convoy {

// The array that shared_memory() in kernels/cuda/primitives/launch.h declares, inside a function of
// convoy::kernels::cuda, which makes it a member of that namespace. It belongs to one block at a time. Bytes
// beyond the size that the launch requested are poisoned. AddressSanitizer does not watch the end of an array
// with so large an alignment, so further bytes follow that no launch can request.
namespace kernels::cuda {
alignas(1024) unsigned char block_shared_bytes[emulator::kMaxSharedBytes + 1024];
}

namespace emulator {
namespace {

using kernels::cuda::block_shared_bytes;

/// Thrown through a waiting thread to end it, so that the objects on its stack are destroyed.
struct Unwind {};

uint3 index_in(dim3 size, unsigned linear) {
  return {linear % size.x, linear / size.x % size.y, linear / size.x / size.y};
}

std::string text(uint3 v) { return formatted("({}, {}, {})", v.x, v.y, v.z); }

std::string text(Where where) {
  const std::string_view path = where.file_name();
  return formatted("{}:{}", path.substr(path.rfind('/') + 1), where.line());
}

bool same_place(Where a, Where b) {
  if (a.line() != b.line() || a.column() != b.column()) return false;
  return a.file_name() == b.file_name() || std::string_view(a.file_name()) == b.file_name();
}

std::string current_block() { return "block " + text(blockIdx); }

}  // namespace

BlockRunner* BlockRunner::current_runner_ = nullptr;

const char* BlockRunner::shared_memory() { return reinterpret_cast<const char*>(block_shared_bytes); }

std::string BlockRunner::to_string(unsigned thread) const { return "thread " + text(indices_[thread]); }

void BlockRunner::fault(const std::string& what, Where where) const {
  throw KernelFault(formatted("{}: {}, {}: {}", text(where), current_block(), to_string(thread_), what));
}

std::vector<unsigned> BlockRunner::in_order(std::size_t count) {
  std::vector<unsigned> all(count);
  std::iota(all.begin(), all.end(), 0u);
  if (order_ == Order::descending) std::reverse(all.begin(), all.end());
  if (order_ == Order::random) std::shuffle(all.begin(), all.end(), *random_);
  return all;
}

void BlockRunner::run(const Launch& launch, Order order, std::mt19937_64& random) {
  const OwnCode scope;
  launch_ = &launch;
  order_ = order;
  random_ = &random;
  gridDim = launch.grid;
  blockDim = launch.block;
  unpoison(block_shared_bytes, launch.shared_bytes);
  poison(block_shared_bytes + launch.shared_bytes, sizeof(block_shared_bytes) - launch.shared_bytes);
  used_shared_bytes_ = launch.shared_bytes;
  static_arrays_.clear();
  is_dynamic_named_ = false;
  AccessChecker* const checker = AccessChecker::current();
  if (checker != nullptr) {
    AccessChecker::stop_kernel = [](const std::string& what) { current().abandon(what); };
    checker->begin_launch({shared_memory(), kMaxSharedBytes});
    checker->declare_shared({shared_memory(), launch.shared_bytes}, {.name = "shared memory"});
  }
  current_runner_ = this;
  indices_.clear();
  for (unsigned thread = 0; thread < launch.block.x * launch.block.y * launch.block.z; ++thread)
    indices_.push_back(index_in(launch.block, thread));
  for (const unsigned block : in_order(std::size_t{launch.grid.x} * launch.grid.y * launch.grid.z)) {
    blockIdx = index_in(launch.grid, block);
    std::memset(block_shared_bytes, kUninitialized, used_shared_bytes_);
    if (checker != nullptr) checker->begin_block(static_cast<unsigned>(indices_.size()));
    run_block();
    if (checker != nullptr) checker->end_block();
  }
}

void BlockRunner::run_block() {
  const std::size_t count = indices_.size();
  threads_.assign(count, {});
  has_waited_for_kernel_.assign(count, false);
  copies_.assign(count, {});
  warpgroups_.begin_block(count, launch_->shared_bytes);
  convergences_.resize((count + 31) / 32);
  for (auto& of_warp : convergences_) of_warp.clear();
  at_barrier_ = 0;
  votes_ = 0;
  fault_.clear();
  const std::vector<unsigned> first = in_order(count);
  queue_.assign(first.begin(), first.end());
  while (!queue_.empty() && fault_.empty()) {
    const unsigned thread = queue_.front();
    queue_.pop_front();
    enter(thread);
  }
  if (fault_.empty()) fault_ = describe_waiting();
  if (fault_.empty())
    if (const std::string what = warpgroups_.end_block(); !what.empty())
      fault_ = current_block() + ": " + what;
  if (fault_.empty()) {
    if (AccessCounter* const counter = AccessCounter::current()) counter->end_block();
    return;
  }
  unwind();
  if (AccessChecker* const checker = AccessChecker::current()) checker->end_block();
  throw KernelFault(fault_);
}

/// Resumes a thread on its fiber, or starts it on a free one.
void BlockRunner::enter(unsigned thread) {
  thread_ = thread;
  threadIdx = indices_[thread];
  fiber_ = std::exchange(threads_[thread].fiber, nullptr);
  if (fiber_ == nullptr) {
    if (free_fibers_.empty()) {
      const std::size_t index = fibers_.size();
      fibers_.push_back(std::make_unique<Fiber>([this, index] { run_fiber(*fibers_[index]); }));
      free_fibers_.push_back(fibers_.back().get());
    }
    fiber_ = free_fibers_.back();
    free_fibers_.pop_back();
  }
  if (AccessChecker* const checker = AccessChecker::current())
    checker->set_stack({fiber_->stack(), Fiber::kStackBytes});
  fiber_->enter();
}

/// Runs threads to their end, one after another, as long as the next thread in the queue has not started. So
/// a kernel that never waits needs one fiber and no switch.
void BlockRunner::run_fiber(Fiber& fiber) {
  while (true) {
    threads_[thread_].status = Status::ready;
    try {
      launch_->thread();
      if (launch_->starts_early && !has_waited_for_kernel_[thread_])
        fault_ =
            formatted("{}, {}: ends without having waited for the previous kernel, before which it may start",
                      current_block(), to_string(thread_));
    } catch (const Unwind&) {
    } catch (const std::exception& caught) {
      if (fault_.empty()) fault_ = caught.what();
    }
    threads_[thread_].status = Status::ended;
    if (fault_.empty() && !queue_.empty() && threads_[queue_.front()].status == Status::not_started) {
      thread_ = queue_.front();
      queue_.pop_front();
      threadIdx = indices_[thread_];
      continue;
    }
    free_fibers_.push_back(&fiber);
    fiber.leave();
  }
}

/// Suspends the running thread until it is released. Its status says what it waits for.
void BlockRunner::wait() {
  threads_[thread_].fiber = fiber_;
  fiber_->leave();
  if (!fault_.empty()) throw Unwind{};
}

void BlockRunner::abandon(const std::string& what) {
  if (fault_.empty()) fault_ = what;
  threads_[thread_].status = Status::ended;
  fiber_->leave();
  std::abort();  // it is not resumed: it belongs neither to a thread nor to the free ones
}

void* BlockRunner::static_shared(const void* key, std::size_t bytes, std::size_t alignment,
                                 Declaration declaration) {
  for (const StaticArray& array : static_arrays_)
    if (array.key == key) return array.begin;
  constexpr std::size_t kAlignment = 16;
  alignment = std::max(alignment, kAlignment);
  const std::size_t begin = (used_shared_bytes_ + alignment - 1) / alignment * alignment;
  if (begin + bytes > kMaxSharedBytes)
    throw KernelFault(formatted("{}, {}: the kernel needs more than {} B of shared memory, for {}",
                                current_block(), to_string(thread_), kMaxSharedBytes, declaration.name));
  used_shared_bytes_ = begin + bytes;
  unsigned char* const array = block_shared_bytes + begin;
  unpoison(array, bytes);
  std::memset(array, kUninitialized, bytes);
  if (AccessChecker* const checker = AccessChecker::current())
    checker->declare_shared({reinterpret_cast<const char*>(array), bytes}, std::move(declaration));
  static_arrays_.push_back({key, array});
  return array;
}

void BlockRunner::name_dynamic_shared(Declaration declaration) {
  AccessChecker* const checker = AccessChecker::current();
  if (checker == nullptr || std::exchange(is_dynamic_named_, true)) return;
  declaration.extents = {launch_->shared_bytes / std::max<std::size_t>(declaration.element_bytes, 1)};
  checker->declare_shared({shared_memory(), launch_->shared_bytes}, std::move(declaration));
}

void BlockRunner::release(std::vector<unsigned> threads) {
  for (const unsigned thread : threads) threads_[thread].status = Status::ready;
  if (order_ == Order::descending) std::reverse(threads.begin(), threads.end());
  if (order_ == Order::random) std::shuffle(threads.begin(), threads.end(), *random_);
  queue_.insert(queue_.end(), threads.begin(), threads.end());
}

/// Ends the threads that still wait after a fault.
void BlockRunner::unwind() {
  queue_.clear();
  for (unsigned thread = 0; thread < threads_.size(); ++thread)
    if (threads_[thread].fiber != nullptr) enter(thread);
}

void BlockRunner::barrier(Where where) {
  if (at_barrier_ > 0 && !same_place(barrier_, where))
    fault("__syncthreads() here, while other threads of the block wait at the one in " + text(barrier_),
          where);
  barrier_ = where;
  threads_[thread_] = {.status = Status::at_barrier, .where = where};
  if (++at_barrier_ == threads_.size()) {
    at_barrier_ = 0;
    last_votes_ = std::exchange(votes_, 0);
    if (AccessCounter* const counter = AccessCounter::current()) counter->barrier();
    if (AccessChecker* const checker = AccessChecker::current()) checker->barrier();
    std::vector<unsigned> all(threads_.size());
    std::iota(all.begin(), all.end(), 0u);
    release(std::move(all));
  }
  wait();
}

int BlockRunner::barrier_count(bool predicate, Where where) {
  votes_ += predicate ? 1 : 0;
  barrier(where);
  return last_votes_;  // no thread has reached another barrier that this one has not
}

BlockRunner::Convergence& BlockRunner::convergence_of(unsigned warp, unsigned mask) {
  std::vector<Convergence>& of_warp = convergences_[warp];
  const auto has_mask = [&](const Convergence& convergence) { return convergence.mask == mask; };
  const auto found = std::find_if(of_warp.begin(), of_warp.end(), has_mask);
  return found != of_warp.end() ? *found : of_warp.emplace_back(Convergence{.mask = mask});
}

const std::uint64_t* BlockRunner::converge(unsigned mask, std::uint64_t bits, Where where,
                                           bool orders_memory) {
  const unsigned warp = thread_ / 32;
  if ((mask >> lane() & 1u) == 0) fault(formatted("lane {} is not in its own mask", lane()), where);
  const auto in_warp = static_cast<unsigned>(std::min<std::size_t>(32, threads_.size() - warp * 32));
  if (in_warp < 32 && mask >> in_warp != 0)
    fault(formatted("the mask has lanes that do not exist: the warp has {} threads", in_warp), where);

  Convergence& convergence = convergence_of(warp, mask);
  if (convergence.waiting != 0 && !same_place(convergence.where, where))
    fault(
        "a warp operation here, while other lanes of its mask wait at the one in " + text(convergence.where),
        where);
  const unsigned turn = convergence.turn;
  convergence.where = where;
  convergence.values[turn][lane()] = bits;
  convergence.waiting |= 1u << lane();
  threads_[thread_] = {.status = Status::at_warp_operation, .mask = mask, .where = where};
  if (convergence.waiting == mask) {
    convergence.waiting = 0;
    convergence.turn ^= 1u;
    if (AccessChecker* const checker = AccessChecker::current(); checker != nullptr && orders_memory)
      checker->warp_barrier(warp, mask);
    std::vector<unsigned> lanes;
    for (unsigned l = 0; l < 32; ++l)
      if ((mask >> l & 1u) != 0) lanes.push_back(warp * 32 + l);
    release(std::move(lanes));
  }
  wait();
  return convergence_of(warp, mask).values[turn].data();  // looked up again: another mask may have moved it
}

std::string BlockRunner::state_of(unsigned thread) const {
  const Thread& held = threads_[thread];
  return to_string(thread) + (held.status == Status::ended ? " has ended" : " waits at " + text(held.where));
}

/// Called when no thread can run. Returns "" if all have ended, otherwise which thread waits where and for
/// which one.
std::string BlockRunner::describe_waiting() const {
  const auto count = [this](Status status) {
    return std::count_if(threads_.begin(), threads_.end(),
                         [&](const Thread& t) { return t.status == status; });
  };
  const auto first = [this](auto&& is_wanted) {
    unsigned thread = 0;
    while (!is_wanted(thread)) ++thread;
    return thread;
  };
  const auto all = static_cast<std::ptrdiff_t>(threads_.size());
  if (count(Status::ended) == all) return "";
  if (at_barrier_ > 0) {
    const unsigned missing = first([&](unsigned t) { return threads_[t].status != Status::at_barrier; });
    return formatted(
        "{}: {}: {} of {} threads wait at __syncthreads(), but {} have ended without reaching it; {}",
        text(barrier_), current_block(), at_barrier_, all, count(Status::ended), state_of(missing));
  }
  const unsigned waiting = first([&](unsigned t) { return threads_[t].status == Status::at_warp_operation; });
  const unsigned mask = threads_[waiting].mask;
  const unsigned missing = first([&](unsigned t) {
    return t / 32 == waiting / 32 && (mask >> t % 32 & 1u) != 0 &&
           (threads_[t].status != Status::at_warp_operation || threads_[t].mask != mask);
  });
  return formatted("{}: {}, {} waits at a warp operation for lane {} of its mask; {}",
                   text(threads_[waiting].where), current_block(), to_string(waiting), missing % 32,
                   state_of(missing));
}

}  // namespace emulator
}  // namespace convoy

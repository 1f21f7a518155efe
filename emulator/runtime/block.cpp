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

std::string block_text(uint3 index) { return "block " + text(index); }
std::string current_block() { return block_text(blockIdx); }

unsigned count_of(dim3 size) { return size.x * size.y * size.z; }

}  // namespace

BlockRunner* BlockRunner::current_runner_ = nullptr;

const char* BlockRunner::shared_memory() { return reinterpret_cast<const char*>(block_shared_bytes); }

unsigned char* BlockRunner::slot(unsigned rank) {
  static auto* const begin =
      static_cast<unsigned char*>(std::aligned_alloc(1024, kMaxClusterBlocks * kSlotBytes));
  return begin + rank * kSlotBytes;
}

AccessCounter::Range BlockRunner::slots() {
  return {reinterpret_cast<const char*>(slot(0)), kMaxClusterBlocks * kSlotBytes};
}

std::string BlockRunner::to_string(unsigned thread) const {
  return "thread " + text(indices_[thread % in_block()]);
}

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
    checker->begin_launch({shared_memory(), kMaxSharedBytes}, slots(), kSlotBytes);
    checker->declare_shared({shared_memory(), launch.shared_bytes}, {.name = "shared memory"});
  }
  current_runner_ = this;
  indices_.clear();
  for (unsigned thread = 0; thread < launch.block.x * launch.block.y * launch.block.z; ++thread)
    indices_.push_back(index_in(launch.block, thread));
  const dim3 clusters(launch.grid.x / launch.cluster.x, launch.grid.y / launch.cluster.y,
                      launch.grid.z / launch.cluster.z);
  for (const unsigned cluster : in_order(std::size_t{clusters.x} * clusters.y * clusters.z)) {
    begin_cluster(index_in(clusters, cluster));
    run_cluster();
    if (checker != nullptr) checker->end_block();
  }
}

void BlockRunner::begin_cluster(uint3 cluster) {
  const unsigned count = in_block(), blocks = count_of(launch_->cluster);
  threads_.assign(std::size_t{count} * blocks, {});
  arrivals_.assign(threads_.size(), {});
  has_waited_for_kernel_.assign(threads_.size(), false);
  copies_.assign(threads_.size(), {});
  blocks_.resize(blocks);
  arrived_ = completed_ = 0;
  fault_.clear();
  std::vector<uint3> block_indices;
  for (unsigned rank = 0; rank < blocks; ++rank) {
    Block& block = blocks_[rank];
    const uint3 within = index_in(launch_->cluster, rank);
    block.index = {cluster.x * launch_->cluster.x + within.x, cluster.y * launch_->cluster.y + within.y,
                   cluster.z * launch_->cluster.z + within.z};
    block_indices.push_back(block.index);
    block.clocks.begin_block(count);
    block.chunks.begin_block(count, block.clocks);
    block.barriers.begin_block(count, block.clocks, block.chunks);
    block.warpgroups.begin_block(count, launch_->shared_bytes);
    block.convergences.resize((count + 31) / 32);
    for (auto& of_warp : block.convergences) of_warp.clear();
    block.live = count;
    block.at_barrier = 0;
    block.votes = 0;
    block.queue.clear();
    for (const unsigned thread : in_order(count)) block.queue.push_back(rank * count + thread);
    if (rank == 0) continue;
    unpoison(slot(rank), kSlotBytes);
    std::memset(slot(rank), kUninitialized, used_shared_bytes_);
    poison(slot(rank) + used_shared_bytes_, kSlotBytes - used_shared_bytes_);
  }
  rank_ = running_rank = 0;
  ThreadClocks::running = &blocks_[0].clocks;
  blockIdx = blocks_[0].index;
  std::memset(block_shared_bytes, kUninitialized, used_shared_bytes_);
  if (AccessChecker* const checker = AccessChecker::current())
    checker->begin_block(count, std::move(block_indices));
}

void BlockRunner::run_cluster() {
  while (fault_.empty()) {
    std::deque<unsigned>* const queue = next_queue();
    if (queue == nullptr) break;
    const unsigned thread = queue->front();
    queue->pop_front();
    enter(thread);
  }
  for (unsigned rank = 0; rank < blocks_.size() && fault_.empty(); ++rank) fault_ = describe_waiting(rank);
  for (const Block& block : blocks_)
    if (fault_.empty())
      for (const std::string& what : {block.warpgroups.end_block(), block.barriers.end_block()})
        if (!what.empty() && fault_.empty()) fault_ = block_text(block.index) + ": " + what;
  if (fault_.empty()) {
    if (AccessCounter* const counter = AccessCounter::current()) counter->end_block();
    return;
  }
  unwind();
  if (AccessChecker* const checker = AccessChecker::current()) checker->end_block();
  throw KernelFault(fault_);
}

/// Returns the queue of threads that run next, that of the running block if it has any; null if no thread can run.
std::deque<unsigned>* BlockRunner::next_queue() {
  if (!blocks_[rank_].queue.empty()) return &blocks_[rank_].queue;
  if (blocks_.size() == 1) return nullptr;
  for (const unsigned rank : in_order(blocks_.size()))
    if (!blocks_[rank].queue.empty()) return &blocks_[rank].queue;
  return nullptr;
}

/// Makes a thread the running one, and its block with its shared memory.
void BlockRunner::select(unsigned thread) {
  const unsigned rank = thread / in_block();
  if (rank != rank_) {
    if (AccessChecker* const checker = AccessChecker::current()) checker->switch_block();
    const bool is_alive = blocks_[rank_].live > 0;
    unpoison(slot(rank_), used_shared_bytes_);
    if (is_alive)
      std::memcpy(slot(rank_), block_shared_bytes, used_shared_bytes_);
    else
      std::memset(slot(rank_), kUninitialized, used_shared_bytes_);
    if (!is_alive) poison(slot(rank_), used_shared_bytes_);
    std::memcpy(block_shared_bytes, slot(rank), used_shared_bytes_);
    poison(slot(rank), used_shared_bytes_);
    rank_ = running_rank = rank;
    ThreadClocks::running = &blocks_[rank].clocks;
    blockIdx = blocks_[rank].index;
  }
  thread_ = thread;
  threadIdx = indices_[thread % in_block()];
}

/// The running thread has ended.
void BlockRunner::ended() {
  threads_[thread_].status = Status::ended;
  --blocks_[rank_].live;
  if (std::exchange(arrivals_[thread_].is_pending, false) && arrivals_[thread_].completed == completed_)
    --arrived_;
  complete_cluster_barrier();
}

/// Resumes a thread on its fiber, or starts it on a free one.
void BlockRunner::enter(unsigned thread) {
  select(thread);
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
    ended();
    std::deque<unsigned>* const queue = fault_.empty() ? next_queue() : nullptr;
    if (queue != nullptr && threads_[queue->front()].status == Status::not_started) {
      const unsigned thread = queue->front();
      queue->pop_front();
      select(thread);
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
  const std::size_t limit = launch_->max_shared_bytes;
  if (begin + bytes > limit)
    throw KernelFault(formatted("{}, {}: the kernel needs more than {} B of shared memory, for {}",
                                current_block(), to_string(thread_), limit, declaration.name));
  used_shared_bytes_ = begin + bytes;
  unsigned char* const array = block_shared_bytes + begin;
  unpoison(array, bytes);
  std::memset(array, kUninitialized, bytes);
  for (unsigned rank = 0; rank < blocks_.size(); ++rank) {
    if (rank == rank_ || blocks_[rank].live == 0) continue;
    unpoison(slot(rank) + begin, bytes);
    std::memset(slot(rank) + begin, kUninitialized, bytes);
  }
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
  for (const unsigned thread : threads) blocks_[thread / in_block()].queue.push_back(thread);
}

void BlockRunner::resume(std::vector<unsigned> threads) {
  for (unsigned& thread : threads) thread += rank_ * in_block();
  release(std::move(threads));
}

void BlockRunner::suspend(Where where) {
  threads_[thread_] = {.status = Status::at_async_barrier, .where = where};
  wait();
}

/// Ends the threads that still wait after a fault.
void BlockRunner::unwind() {
  for (Block& block : blocks_) block.queue.clear();
  for (unsigned thread = 0; thread < threads_.size(); ++thread)
    if (threads_[thread].fiber != nullptr) enter(thread);
}

void BlockRunner::barrier(Where where) {
  Block& block = blocks_[rank_];
  if (block.at_barrier > 0 && !same_place(block.barrier, where))
    fault("__syncthreads() here, while other threads of the block wait at the one in " + text(block.barrier),
          where);
  block.barrier = where;
  threads_[thread_] = {.status = Status::at_barrier, .where = where};
  if (++block.at_barrier == in_block()) {
    block.at_barrier = 0;
    block.last_votes = std::exchange(block.votes, 0);
    if (AccessCounter* const counter = AccessCounter::current()) counter->barrier();
    if (AccessChecker* const checker = AccessChecker::current()) checker->barrier();
    std::vector<unsigned> all(in_block());
    std::iota(all.begin(), all.end(), 0u);
    block.clocks.join(all);
    resume(std::move(all));
  }
  wait();
}

int BlockRunner::barrier_count(bool predicate, Where where) {
  blocks_[rank_].votes += predicate ? 1 : 0;
  barrier(where);
  return blocks_[rank_].last_votes;  // no thread has reached another barrier that this one has not
}

void BlockRunner::cluster_arrive(Where where) {
  if (arrivals_[thread_].is_pending)
    fault("arrives at the barrier of the cluster again, without a wait since the last time", where);
  arrivals_[thread_] = {.is_pending = true, .completed = completed_};
  ++arrived_;
  if (AccessChecker* const checker = AccessChecker::current()) checker->cluster_arrive();
  complete_cluster_barrier();
}

void BlockRunner::cluster_wait(Where where) {
  if (!arrivals_[thread_].is_pending)
    fault("waits at the barrier of the cluster without having arrived at it", where);
  if (arrivals_[thread_].completed == completed_) {
    threads_[thread_] = {.status = Status::at_cluster_barrier, .where = where};
    wait();
  }
  arrivals_[thread_].is_pending = false;
  if (AccessChecker* const checker = AccessChecker::current()) checker->cluster_wait();
}

/// Completes the barrier if all threads of the cluster that have not ended are there.
void BlockRunner::complete_cluster_barrier() {
  unsigned live = 0;
  for (const Block& block : blocks_) live += block.live;
  if (arrived_ == 0 || arrived_ < live) return;
  arrived_ = 0;
  ++completed_;
  if (AccessCounter* const counter = AccessCounter::current()) counter->cluster_barrier();
  if (AccessChecker* const checker = AccessChecker::current()) checker->cluster_barrier();
  std::vector<unsigned> waiting;
  for (unsigned thread = 0; thread < threads_.size(); ++thread)
    if (threads_[thread].status == Status::at_cluster_barrier) waiting.push_back(thread);
  release(std::move(waiting));
}

void* BlockRunner::map_shared(void* shared, unsigned rank, Where where) {
  if (rank >= blocks_.size())
    fault(formatted("maps shared memory of block {} of a cluster that has {}", rank, blocks_.size()), where);
  const unsigned own = rank_of_shared(shared, where);
  const auto offset =
      static_cast<const unsigned char*>(shared) - (own == rank_ ? block_shared_bytes : slot(own));
  if (rank == rank_) return block_shared_bytes + offset;
  if (blocks_[rank].live == 0)
    fault(formatted("maps shared memory of {}, which has ended; it must wait at a barrier of the cluster",
                    block_text(blocks_[rank].index)),
          where);
  return slot(rank) + offset;
}

unsigned BlockRunner::rank_of_shared(const void* shared, Where where) const {
  const auto* const begin = static_cast<const char*>(shared);
  if (AccessCounter::Range{shared_memory(), kMaxSharedBytes}.contains(begin)) return rank_;
  if (!slots().contains(begin)) fault("maps an address that is not of shared memory", where);
  return static_cast<unsigned>(static_cast<std::size_t>(begin - slots().begin) / kSlotBytes);
}

BlockRunner::Convergence& BlockRunner::convergence_of(unsigned warp, unsigned mask) {
  std::vector<Convergence>& of_warp = blocks_[rank_].convergences[warp];
  const auto has_mask = [&](const Convergence& convergence) { return convergence.mask == mask; };
  const auto found = std::find_if(of_warp.begin(), of_warp.end(), has_mask);
  return found != of_warp.end() ? *found : of_warp.emplace_back(Convergence{.mask = mask});
}

const std::uint64_t* BlockRunner::converge(unsigned mask, std::uint64_t bits, Where where,
                                           bool orders_memory) {
  const unsigned warp = thread() / 32;
  if ((mask >> lane() & 1u) == 0) fault(formatted("lane {} is not in its own mask", lane()), where);
  const unsigned in_warp = std::min(32u, in_block() - warp * 32);
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
    std::vector<unsigned> lanes;
    for (unsigned l = 0; l < 32; ++l)
      if ((mask >> l & 1u) != 0) lanes.push_back(warp * 32 + l);
    if (orders_memory) clocks().join(lanes);
    if (AccessChecker* const checker = AccessChecker::current(); checker != nullptr && orders_memory)
      checker->warp_barrier(warp, mask);
    resume(std::move(lanes));
  }
  wait();
  return convergence_of(warp, mask).values[turn].data();  // looked up again: another mask may have moved it
}

std::string BlockRunner::state_of(unsigned thread) const {
  const Thread& held = threads_[thread];
  return to_string(thread) + (held.status == Status::ended ? " has ended" : " waits at " + text(held.where));
}

/// Called when no thread can run. Returns "" if all of a block have ended, otherwise which thread waits where and
/// for which one. (A barrier of the cluster does not complete only if threads wait for each other elsewhere.)
std::string BlockRunner::describe_waiting(unsigned rank) const {
  const unsigned begin = rank * in_block(), end = begin + in_block();
  const Block& block = blocks_[rank];
  const auto first = [&](auto&& is_wanted) {
    unsigned thread = begin;
    while (thread < end && !is_wanted(thread)) ++thread;
    return thread;
  };
  // The barriers at which threads wait, each with the first of its threads: one of them is the cause.
  std::string waits;
  for (unsigned thread = begin; thread < end; ++thread) {
    if (threads_[thread].status != Status::at_async_barrier) continue;
    const std::string wait = block.barriers.wait_of(thread - begin);
    if (waits.find(wait) != std::string::npos) continue;
    waits +=
        waits.empty() ? formatted("{}: {}, ", text(threads_[thread].where), block_text(block.index)) : "; ";
    waits += to_string(thread) + " " + wait;
  }
  if (!waits.empty()) return waits;
  if (block.at_barrier > 0) {
    const unsigned missing = first([&](unsigned t) { return threads_[t].status != Status::at_barrier; });
    return formatted(
        "{}: {}: {} of {} threads wait at __syncthreads(), but {} have ended without reaching it; {}",
        text(block.barrier), block_text(block.index), block.at_barrier, in_block(), in_block() - block.live,
        state_of(missing));
  }
  const unsigned waiting = first([&](unsigned t) { return threads_[t].status == Status::at_warp_operation; });
  if (waiting == end) return "";
  const unsigned mask = threads_[waiting].mask, lanes = begin + (waiting - begin) / 32 * 32;
  const unsigned missing = first([&](unsigned t) {
    return t >= lanes && (mask >> (t - lanes) & 1u) != 0 &&
           (threads_[t].status != Status::at_warp_operation || threads_[t].mask != mask);
  });
  return formatted("{}: {}, {} waits at a warp operation for lane {} of its mask; {}",
                   text(threads_[waiting].where), block_text(block.index), to_string(waiting),
                   missing - lanes, state_of(missing));
}

}  // namespace emulator
}  // namespace convoy

#include "emulator/runtime/async_barriers.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "emulator/checking/own_code.h"
#include "emulator/counting/formatted.h"
#include "emulator/runtime/block.h"

namespace convoy::emulator {
namespace {

std::uint32_t offset_of(const void* shared) {
  return static_cast<std::uint32_t>(static_cast<const char*>(shared) - BlockRunner::shared_memory());
}

}  // namespace

void PendingCopy::land(SharedChunks& chunks, unsigned thread, SharedChunks::Proxy proxy) const {
  if (from != nullptr)
    std::memcpy(to, from, SharedChunks::kBytes);
  else
    std::memset(to, 0, SharedChunks::kBytes);
  chunks.landed(offset_of(to), thread, proxy);
}

void AsyncBarriers::begin_block(unsigned threads, ThreadClocks& clocks, SharedChunks& chunks) {
  threads_ = threads;
  clocks_ = &clocks;
  chunks_ = &chunks;
  mbarriers_.clear();
  named_.fill({});
  registers_.clear();
}

std::string AsyncBarriers::end_block() const {
  for (unsigned id = 0; id < kNames; ++id)
    if (const Named& barrier = named_[id]; barrier.expected != 0)
      return formatted("named barrier {} has {} of {} threads at the end of the block", id,
                       barrier.arrived.size(), barrier.expected);
  for (unsigned thread = 0; thread < registers_.size(); ++thread)
    if (registers_[thread] != registers_[thread / kWarpgroup * kWarpgroup])
      return formatted("thread {} has {} registers by setmaxnreg, and thread {} of its warpgroup has {}",
                       thread, registers_[thread], thread / kWarpgroup * kWarpgroup,
                       registers_[thread / kWarpgroup * kWarpgroup]);
  const unsigned all = std::accumulate(registers_.begin(), registers_.end(), 0u);
  return all <= kRegisters
             ? ""
             : formatted("setmaxnreg: the threads have {} registers in all, expected at most {}", all,
                         kRegisters);
}

std::string AsyncBarriers::describe(const Mbarrier& barrier) const {
  return formatted("it is in phase {}, of parity {}, with {} of {} arrivals and {} B missing", barrier.phases,
                   barrier.phases % 2, barrier.count - barrier.missing, barrier.count, barrier.bytes);
}

std::string AsyncBarriers::wait_of(unsigned thread) const {
  const auto has = [&](const std::vector<unsigned>& all) {
    return std::find(all.begin(), all.end(), thread) != all.end();
  };
  for (const auto& [address, barrier] : mbarriers_)
    if (has(barrier.waiting))
      return formatted("waits for the end of a phase of parity {} of the mbarrier at {} of shared memory; {}",
                       barrier.phases % 2, offset_of(address), describe(barrier));
  for (unsigned id = 0; id < kNames; ++id)
    if (has(named_[id].waiting))
      return formatted("waits at named barrier {}, where {} of {} threads are", id, named_[id].arrived.size(),
                       named_[id].expected);
  return "";
}

void AsyncBarriers::initialize(const void* barrier, unsigned count, Where where) {
  constexpr unsigned kMaxCount = (1u << 20) - 1;
  BlockRunner& runner = BlockRunner::current();
  if (offset_of(barrier) + 8 > runner.used_shared_bytes() || offset_of(barrier) % 8 != 0)
    runner.fault("mbarrier.init: found an address that is not a multiple of 8 in the block's shared memory",
                 where);
  if (count == 0 || count > kMaxCount)
    runner.fault(formatted("mbarrier.init: found a count of {}, expected 1 to {}", count, kMaxCount), where);
  clocks_->activate();
  const auto found = mbarriers_.find(barrier);
  if (found != mbarriers_.end() && !found->second.waiting.empty())
    runner.fault("mbarrier.init of an mbarrier at which a thread waits", where);
  const unsigned thread = running_thread();
  mbarriers_[barrier] = {
      .count = count, .missing = count, .initializer = thread, .initialized = clocks_->now(thread)};
  // An mbarrier is opaque. These bits are those of no number.
  std::memset(const_cast<void*>(barrier), kUninitialized, 8);
}

AsyncBarriers::Mbarrier& AsyncBarriers::find(const void* barrier, const char* what, Where where) {
  const BlockRunner& runner = BlockRunner::current();
  const auto found = mbarriers_.find(barrier);
  if (found == mbarriers_.end())
    runner.fault(formatted("{} of an mbarrier that no thread has initialized", what), where);
  Mbarrier& result = found->second;
  if (!clocks_->has_seen(running_thread(), result.initializer, result.initialized))
    runner.fault(formatted("{} of an mbarrier that thread {} initializes; no barrier is between them", what,
                           result.initializer),
                 where);
  return result;
}

void AsyncBarriers::end_phase_if_complete(Mbarrier& barrier) {
  if (barrier.missing > 0 || barrier.bytes != 0) return;
  ++barrier.phases;
  barrier.missing = barrier.count;
  barrier.completed = barrier.arrived;
  BlockRunner::current().resume(std::exchange(barrier.waiting, {}));
}

void AsyncBarriers::complete(Mbarrier& barrier, const Completion& completion) {
  for (const PendingCopy& copy : completion.copies)
    copy.land(*chunks_, completion.thread,
              completion.is_bulk ? SharedChunks::Proxy::async : SharedChunks::Proxy::generic);
  ThreadClocks::Clock& to = barrier.arrived;
  if (to.size() < completion.clock.size()) to.resize(completion.clock.size(), 0);
  for (std::size_t i = 0; i < completion.clock.size(); ++i) to[i] = std::max(to[i], completion.clock[i]);
  if (completion.is_bulk)
    barrier.bytes -= static_cast<std::int64_t>(completion.copies.size() * SharedChunks::kBytes);
  else
    --barrier.missing;
  end_phase_if_complete(barrier);
}

void AsyncBarriers::complete_all(Mbarrier& barrier) {
  for (const Completion& completion : std::exchange(barrier.completions, {})) complete(barrier, completion);
}

void AsyncBarriers::arrive(const void* barrier, unsigned bytes, Where where) {
  Mbarrier& at = find(barrier, "mbarrier.arrive", where);
  if (at.missing == 0)
    BlockRunner::current().fault(
        formatted("mbarrier.arrive: found more than {} arrivals; {}", at.count, describe(at)), where);
  clocks_->release(running_thread(), at.arrived);
  at.bytes += bytes;
  --at.missing;
  end_phase_if_complete(at);
}

void AsyncBarriers::wait(const void* barrier, unsigned parity, Where where) {
  Mbarrier& at = find(barrier, "mbarrier.try_wait", where);
  if (parity > 1) BlockRunner::current().fault("mbarrier.try_wait: found a parity that is not 0 or 1", where);
  const unsigned thread = running_thread();
  if (at.phases % 2 == parity) complete_all(at);
  if (at.phases % 2 == parity) {
    at.waiting.push_back(thread);
    BlockRunner::current().suspend(where);
  }
  clocks_->acquire(thread, at.completed);
}

void AsyncBarriers::arrive_after(const void* barrier, std::vector<PendingCopy> copies, Where where) {
  Mbarrier& at = find(barrier, "cp.async.mbarrier.arrive", where);
  Completion completion{running_thread(), /*is_bulk=*/false, std::move(copies), {}};
  clocks_->release(completion.thread, completion.clock);
  at.completions.push_back(std::move(completion));
  if (!at.waiting.empty()) complete_all(at);
}

void AsyncBarriers::copy_bulk(const void* barrier, std::vector<PendingCopy> copies, Where where) {
  Mbarrier& at = find(barrier, "cp.async.bulk", where);
  Completion completion{running_thread(), /*is_bulk=*/true, std::move(copies), {}};
  clocks_->release(completion.thread, completion.clock);
  at.completions.push_back(std::move(completion));
  if (!at.waiting.empty()) complete_all(at);
}

void AsyncBarriers::land_copies() {
  const unsigned thread = running_thread();
  for (auto& [address, barrier] : mbarriers_) {
    std::vector<Completion> own;
    std::erase_if(barrier.completions, [&](Completion& each) {
      const bool is_own = each.thread == thread && !each.is_bulk;
      if (is_own) own.push_back(std::move(each));
      return is_own;
    });
    for (const Completion& completion : own) complete(barrier, completion);
  }
}

void AsyncBarriers::named(unsigned id, unsigned threads, bool waits, Where where) {
  BlockRunner& runner = BlockRunner::current();
  const char* const what = waits ? "barrier.sync" : "barrier.arrive";
  if (id == 0 || id >= kNames)
    runner.fault(formatted("{}: found named barrier {}, expected 1 to {}; 0 is that of __syncthreads()", what,
                           id, kNames - 1),
                 where);
  if (threads == 0 || threads % kWarp != 0 || threads > threads_)
    runner.fault(
        formatted("{}: found a count of {} threads, expected a multiple of {} up to the {} of the block",
                  what, threads, kWarp, threads_),
        where);
  clocks_->activate();
  Named& barrier = named_[id];
  const unsigned thread = running_thread();
  if (barrier.expected != 0 && barrier.expected != threads)
    runner.fault(formatted("{}: found a count of {} threads for named barrier {}, where others expect {}",
                           what, threads, id, barrier.expected),
                 where);
  if (std::find(barrier.arrived.begin(), barrier.arrived.end(), thread) != barrier.arrived.end())
    runner.fault(formatted("{}: the thread arrives at named barrier {} again, before all {} threads have",
                           what, id, threads),
                 where);
  barrier.expected = threads;
  barrier.arrived.push_back(thread);
  if (waits) barrier.waiting.push_back(thread);
  clocks_->release(thread, barrier.clock);
  if (barrier.arrived.size() < threads) {
    if (waits) runner.suspend(where);
    return;
  }
  Named complete = std::exchange(barrier, {});
  for (const unsigned each : complete.waiting) clocks_->acquire(each, complete.clock);
  std::erase(complete.waiting, thread);  // it goes on
  runner.resume(std::move(complete.waiting));
}

void AsyncBarriers::set_registers(unsigned count, bool grows, Where where) {
  constexpr unsigned kMin = 24, kMax = 256, kUnit = 8;
  const BlockRunner& runner = BlockRunner::current();
  const char* const what = grows ? "setmaxnreg.inc" : "setmaxnreg.dec";
  if (count < kMin || count > kMax || count % kUnit != 0)
    runner.fault(formatted("{}: found {} registers, expected a multiple of {} from {} to {}", what, count,
                           kUnit, kMin, kMax),
                 where);
  // Without knowledge of the compiler, a launch has as many registers as fit.
  if (registers_.empty()) registers_.assign(threads_, std::min(kMax, kRegisters / threads_ / kUnit * kUnit));
  unsigned& own = registers_[running_thread()];
  if (grows ? count < own : count > own)
    runner.fault(formatted("{}: found {} registers, where the thread has {}", what, count, own), where);
  own = count;
}

// The instructions.

namespace {
AsyncBarriers& barriers() { return BlockRunner::current().barriers(); }
}  // namespace

void initialize_mbarrier(void* barrier, unsigned count, Where where) {
  const OwnCode scope;
  barriers().initialize(barrier, count, where);
}
void arrive_at_mbarrier(void* barrier, Where where) {
  const OwnCode scope;
  barriers().arrive(barrier, 0, where);
}
void expect_bytes(void* barrier, unsigned bytes, Where where) {
  const OwnCode scope;
  barriers().arrive(barrier, bytes, where);
}
void wait_for_mbarrier(void* barrier, unsigned parity, Where where) {
  const OwnCode scope;
  barriers().wait(barrier, parity, where);
}
void named_barrier_sync(unsigned id, unsigned threads, Where where) {
  const OwnCode scope;
  barriers().named(id, threads, /*waits=*/true, where);
}
void named_barrier_arrive(unsigned id, unsigned threads, Where where) {
  const OwnCode scope;
  barriers().named(id, threads, /*waits=*/false, where);
}
void set_max_registers(unsigned count, bool grows, Where where) {
  const OwnCode scope;
  barriers().set_registers(count, grows, where);
}

}  // namespace convoy::emulator

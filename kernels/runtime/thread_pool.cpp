#include "convoy/kernels/runtime/thread_pool.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <system_error>

#include "convoy/kernels/base/cpu_pause.h"

namespace convoy {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Idle workers poll this long for the next loop. Most gaps between the kernels of a training step are shorter,
// and waking a sleeping thread costs more than a small kernel.
constexpr auto kIdlePolling = 100us;
// The same on a busy machine, where a thread that polls uses up time that it is then denied for work.
constexpr auto kBusyPolling = 10us;
// The calling thread polls this long for the last pieces before it looks for suspended workers.
constexpr auto kPiecePolling = 20us;
// The time between two looks at the processor time of a worker, which increases while the worker runs.
constexpr auto kLook = 5us;
// After this time the calling thread sleeps until the workers have finished.
constexpr auto kMaxPolling = 2ms;
// The workers keep off the core of the calling thread this long after a worker had to be moved.
constexpr auto kApart = 100ms;

/// Polls until done() holds or `limit` has passed. Returns whether done() holds.
template <class Done>
bool poll(Clock::duration limit, const Done& done) {
  constexpr int kPausesPerLook = 16;  // reading the clock costs about as much as one pause
  const Clock::time_point end = Clock::now() + limit;
  while (true) {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (done()) return true;
      cpu_pause();
    }
    if (Clock::now() >= end) return false;
  }
}

constexpr std::uint64_t pack(std::uint32_t generation, std::uint64_t next, std::uint64_t end) {
  return (std::uint64_t{generation} << 32) | (next << 16) | end;
}

/// Takes a piece out of `range`: the first one for the owner, the last one for other threads, so that in a
/// quiet machine each thread works on the same part of the arrays in every loop and finds it in its cache.
std::optional<int> take(std::atomic<std::uint64_t>& range, bool owner) {
  std::uint64_t found = range.load(std::memory_order_acquire);
  while (true) {
    const std::uint64_t next = (found >> 16) & 0xffff, end = found & 0xffff;
    if (next == end) return std::nullopt;
    const auto generation = static_cast<std::uint32_t>(found >> 32);
    const std::uint64_t rest = owner ? pack(generation, next + 1, end) : pack(generation, next, end - 1);
    if (range.compare_exchange_weak(found, rest, std::memory_order_acq_rel, std::memory_order_acquire))
      return static_cast<int>(owner ? next : end - 1);
  }
}

}  // namespace

/// A thread of the pool other than the calling thread.
struct ThreadPool::Worker {
  Worker(ThreadPool& pool, int thread_index)
      : index(thread_index), thread([this, &pool] { pool.serve(*this); }) {
    if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0)
      clock = CLOCK_MONOTONIC;  // never stands still
  }

  void run_on(const cpu_set_t& cores) {
    pthread_setaffinity_np(thread.native_handle(), sizeof cores, &cores);
  }
  /// Returns the time that the worker has run.
  std::int64_t processor_time() const {
    timespec time{};
    clock_gettime(clock, &time);
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
  }

  const int index;
  std::atomic<bool> in_piece = false;
  std::atomic<bool> moved = false;  // is on the core of the calling thread and must not poll there
  clockid_t clock = CLOCK_MONOTONIC;
  std::thread thread;  // declared last, so that it starts after the other members exist
};

ThreadPool::ThreadPool(int threads)
    : threads_(threads), shares_(std::make_unique<Share[]>(static_cast<std::size_t>(threads))) {}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  ++generation_;
  generation_.notify_all();
  for (const auto& worker : workers_) worker->thread.join();
}

void ThreadPool::start_workers() {
  CPU_ZERO(&allowed_);
  sched_getaffinity(0, sizeof allowed_, &allowed_);
  try {
    while (std::ssize(workers_) < threads_ - 1)
      workers_.push_back(std::make_unique<Worker>(*this, static_cast<int>(workers_.size()) + 1));
  } catch (const std::system_error&) {
    // The system has no more threads. The shares of the missing workers are taken by the others.
  }
}

void ThreadPool::run_job(Job job, int pieces) {
  if (pieces <= 0) return;
  if (pieces == 1 || threads_ == 1 || in_use_.test_and_set(std::memory_order_acquire)) {
    for (int piece = 0; piece < pieces; ++piece) job.call(job.function, 0, piece);
    return;
  }
  if (workers_.empty()) start_workers();
  if (apart_ && Clock::now() > apart_until_) let_workers_run_anywhere();

  job_ = job;
  unfinished_.store(pieces, std::memory_order_relaxed);
  const std::uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  const auto first = [&](int thread) {
    return static_cast<std::uint64_t>(std::int64_t{pieces} * thread / threads_);
  };
  for (int thread = 0; thread < threads_; ++thread)
    shares_[static_cast<std::size_t>(thread)].range.store(pack(generation, first(thread), first(thread + 1)),
                                                          std::memory_order_release);
  generation_.store(generation);
  generation_.notify_all();

  run_pieces(0);
  wait_for_pieces();
  in_use_.clear(std::memory_order_release);
}

void ThreadPool::serve(Worker& worker) {
  std::uint32_t generation = 0;
  while (true) {
    wait_for_loop(worker, generation);
    generation = generation_.load(std::memory_order_acquire);
    // After the load: the destructor stores `stopping_` before it changes the number for the last time.
    if (stopping_) return;
    worker.in_piece.store(true, std::memory_order_relaxed);
    run_pieces(worker.index);
    worker.in_piece.store(false, std::memory_order_relaxed);
  }
}

void ThreadPool::wait_for_loop(Worker& worker, std::uint32_t last_generation) {
  const bool may_poll = !worker.moved.exchange(false);
  const Clock::duration limit = apart_.load(std::memory_order_relaxed) ? kBusyPolling : kIdlePolling;
  const auto started = [&] { return generation_.load(std::memory_order_acquire) != last_generation; };
  if (may_poll && poll(limit, started)) return;
  generation_.wait(last_generation);
}

void ThreadPool::run_pieces(int thread) {
  for (int other = 0; other < threads_; ++other) {
    Share& share = shares_[static_cast<std::size_t>((thread + other) % threads_)];
    while (const std::optional<int> piece = take(share.range, other == 0)) {
      job_.call(job_.function, thread, *piece);
      finish_piece();
    }
  }
}

void ThreadPool::finish_piece() {
  unfinished_.fetch_sub(1);
  if (caller_sleeps_) unfinished_.notify_one();
}

void ThreadPool::wait_for_pieces() {
  const auto done = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (poll(kPiecePolling, done)) return;
  const Clock::time_point sleep_at = Clock::now() + kMaxPolling;
  while (!done()) {
    const bool moved = move_suspended_workers();
    if (!moved && Clock::now() < sleep_at) continue;
    caller_sleeps_ = true;
    if (const std::int32_t unfinished = unfinished_; unfinished > 0) unfinished_.wait(unfinished);
    caller_sleeps_ = false;
    if (moved) keep_workers_apart();
  }
}

bool ThreadPool::move_suspended_workers() {
  if (CPU_COUNT(&allowed_) == 0) return false;  // unknown, so that a moved worker could not be let go again
  std::vector<std::int64_t> before(workers_.size());
  for (std::size_t i = 0; i < workers_.size(); ++i) before[i] = workers_[i]->processor_time();
  const auto done = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (poll(kLook, done)) return false;
  bool moved = false;
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &here);
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = *workers_[i];
    if (!worker.in_piece.load(std::memory_order_relaxed) || worker.processor_time() != before[i]) continue;
    worker.moved = true;
    worker.run_on(here);
    ++moves_;
    moved = true;
  }
  return moved;
}

void ThreadPool::keep_workers_apart() {
  cpu_set_t cores = allowed_;
  CPU_CLR(static_cast<std::size_t>(sched_getcpu()), &cores);
  if (CPU_COUNT(&cores) == 0) cores = allowed_;
  for (const auto& worker : workers_) worker->run_on(cores);
  apart_ = true;
  apart_until_ = Clock::now() + kApart;
}

void ThreadPool::let_workers_run_anywhere() {
  for (const auto& worker : workers_) worker->run_on(allowed_);
  apart_ = false;
}

}  // namespace convoy

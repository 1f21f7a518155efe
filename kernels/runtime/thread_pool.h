// The threads of a CpuStream, which share the pieces of its parallel loops.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace convoy {

/// A calling thread and its workers. Each loop is a number of pieces, of which each thread has a contiguous
/// share. A thread that has finished its share takes pieces from the other shares, so a thread that the
/// operating system has suspended holds up only the piece that it has begun. Idle workers poll for new work
/// for a short time, then sleep.
///
/// On a machine with other busy processes, the calling thread often waits for a worker that is suspended in
/// the middle of a piece. It then moves the worker to its own core and sleeps until the piece is finished.
/// For a while afterwards, the workers keep off the core of the calling thread.
class ThreadPool {
 public:
  /// Makes a pool of `threads` threads, which include the calling thread. Starts the workers at the first
  /// run().
  explicit ThreadPool(int threads);
  /// Ends the workers.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// The largest number of pieces of a loop.
  static constexpr int kMaxPieces = 65535;

  /// Calls f(thread, piece) for each piece in [0, pieces), where thread is the index of the calling thread in
  /// [0, threads). Blocks until all calls have returned. f must not throw. If the pool is in use, by another
  /// thread or because f calls run(), the calling thread runs all pieces in order, as thread 0.
  template <class F>
  void run(int pieces, const F& f) {
    run_job({[](const void* function, int thread, int piece) {
               (*static_cast<const F*>(function))(thread, piece);
             },
             &f},
            pieces);
  }

  /// Returns how often the calling thread has moved a suspended worker to its own core.
  std::int64_t moves() const { return moves_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    void (*call)(const void* function, int thread, int piece) = nullptr;
    const void* function = nullptr;
  };
  /// The pieces [next, end) of one thread that have not been taken, and the generation of their loop.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> range = 0;
  };
  struct Worker;

  void run_job(Job job, int pieces);
  void start_workers();
  void serve(Worker& worker);
  void wait_for_loop(Worker& worker, std::uint32_t last_generation);
  void run_pieces(int thread);
  void finish_piece();
  void wait_for_pieces();
  bool move_suspended_workers();
  void keep_workers_apart();
  void let_workers_run_anywhere();

  const int threads_;
  std::unique_ptr<Share[]> shares_;
  std::vector<std::unique_ptr<Worker>> workers_;
  cpu_set_t allowed_;  // the cores of the thread that started the workers

  Job job_;  // constant while a piece is unfinished
  std::atomic_flag in_use_;
  std::atomic<bool> caller_sleeps_ = false;
  std::atomic<bool> stopping_ = false;
  alignas(64) std::atomic<std::int32_t> unfinished_ = 0;  // pieces of the loop
  alignas(64) std::atomic<std::uint32_t> generation_ =
      0;  // the number of the loop; workers wait for it to change

  std::atomic<bool> apart_ = false;  // the workers keep off a core, since the machine is busy
  Clock::time_point apart_until_;
  std::int64_t moves_ = 0;
};

}  // namespace convoy

// One block of a kernel: its threads as fibers, its barrier, its warps, its shared memory.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/fiber.h"

namespace convoy::emulator {

/// What a kernel did wrong: "reduce.cu:31: block (0, 0, 0), thread (5, 0, 0): …".
struct KernelFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Launch {
  dim3 grid, block;
  std::size_t shared_bytes;
  std::function<void()> thread;  // what each thread runs
};

/// Runs blocks, one after the other. Threads run one at a time, each until it waits or ends; those that a
/// barrier releases go on in the given order.
class BlockRunner {
 public:
  BlockRunner() = default;
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  /// All blocks of a launch. Throws KernelFault.
  void run(const Launch& launch, Order order, std::mt19937_64& random);

  /// The one in whose run() the caller is: for the functions that a kernel calls without any object.
  static BlockRunner& current() { return *current_runner_; }

  // For the CUDA thread that runs now.
  void barrier(Where where);
  /// Waits for all lanes of the mask; returns what each of them brought, until its next meeting.
  const std::uint64_t* meet(unsigned mask, std::uint64_t bits, Where where);
  unsigned lane() const { return thread_ % 32; }
  [[noreturn]] void fault(const std::string& what, Where where) const;

 private:
  enum class Status : std::uint8_t { fresh, ready, at_barrier, in_meeting, ended };
  struct Thread {
    Status status = Status::fresh;
    unsigned mask = 0;       // of the lanes that it waits for
    Where where{};           // it waits
    Fiber* fiber = nullptr;  // that holds it while it waits
  };
  /// Lanes of one mask that come together at a shuffle or vote. Two sets of values: a lane may still read
  /// those of the last meeting while others bring theirs to the next.
  struct Meeting {
    unsigned mask;
    unsigned arrived = 0;
    unsigned turn = 0;
    Where where{};
    std::array<std::array<std::uint64_t, 32>, 2> values{};
  };

  void run_block();
  void run_fiber(Fiber& fiber);
  void enter(unsigned thread);
  void wait();
  void release(std::vector<unsigned> threads);
  void unwind();
  std::vector<unsigned> in_order(std::size_t count);
  Meeting& meeting_of(unsigned warp, unsigned mask);
  std::string name_of(unsigned thread) const;
  std::string state_of(unsigned thread) const;
  std::string describe_waiting() const;

  static BlockRunner* current_runner_;

  const Launch* launch_ = nullptr;
  Order order_ = Order::ascending;
  std::mt19937_64* random_ = nullptr;

  std::vector<uint3> indices_;  // threadIdx of each thread
  std::vector<Thread> threads_;
  std::deque<unsigned> queue_;                  // threads that may run
  std::vector<std::vector<Meeting>> meetings_;  // of each warp
  unsigned at_barrier_ = 0;                     // threads
  Where barrier_{};                             // that they wait at
  unsigned thread_ = 0;                         // that runs now
  std::string fault_;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_fibers_;
  Fiber* fiber_ = nullptr;  // that runs now
};

}  // namespace convoy::emulator

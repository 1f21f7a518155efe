// One block of a kernel: its threads as fibers, its barrier, its warps, its shared memory.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/fiber.h"

namespace convoy::emulator {

/// What a kernel did wrong, thrown out of its thread.
struct KernelFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Launch {
  std::uint64_t number;  // of this process, for messages
  dim3 grid, block;
  std::size_t shared_bytes;
  std::function<void()> thread;  // what each thread runs
};

/// Runs blocks, one after the other. Threads run one at a time, each until it waits or ends; those that a
/// barrier releases go on in the order of the settings.
class BlockRunner {
 public:
  BlockRunner() = default;
  /// All blocks of a launch. Throws KernelFault.
  void run(const Launch& launch, Order order, std::mt19937_64& random);

  // For the thread that runs now.
  void barrier(Where where);
  const std::uint64_t* meet(unsigned mask, std::uint64_t bits, Where where);
  unsigned lane() const { return current_ % 32; }
  [[noreturn]] void fault(const std::string& what, Where where) const;

 private:
  enum class Status : std::uint8_t { fresh, ready, at_barrier, in_meeting, ended };
  struct Thread {
    Status status = Status::fresh;
    Fiber* fiber = nullptr;  // that holds it while it waits
    Where where{};           // it waits
  };
  /// Lanes of one mask that meet at a shuffle or vote. Two sets of values: a lane may still read those of the
  /// last meeting while others bring theirs to the next.
  struct Meeting {
    unsigned mask;
    unsigned arrived = 0;
    unsigned turn = 0;
    Where where;
    std::array<std::array<std::uint64_t, 32>, 2> values{};
  };

  void run_block();
  void release(std::vector<unsigned> threads);
  void wait_as(Status status, Where where);
  void run_fiber(std::size_t index);
  void enter(unsigned thread);
  void abandon();
  std::vector<unsigned> in_order(unsigned count);
  std::string position() const;
  std::string describe_waiting() const;
  uint3 index_in(dim3 size, unsigned linear) const;

  const Launch* launch_ = nullptr;
  Order order_ = Order::ascending;
  std::mt19937_64* random_ = nullptr;
  std::vector<Thread> threads_;
  std::deque<unsigned> queue_;                  // threads that may run
  std::vector<std::vector<Meeting>> meetings_;  // of each warp
  unsigned at_barrier_ = 0;
  unsigned current_ = 0;
  std::string fault_;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_fibers_;
  Fiber* running_ = nullptr;
};

}  // namespace convoy::emulator

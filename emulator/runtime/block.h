// The execution of a kernel, block by block: threads as fibers, barriers, warps and shared memory.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "emulator/checking/access_checker.h"
#include "emulator/checking/thread_clocks.h"
#include "emulator/runtime/async_barriers.h"
#include "emulator/runtime/emulator.h"
#include "emulator/runtime/fiber.h"
#include "emulator/runtime/shared_chunks.h"
#include "emulator/runtime/warpgroup.h"

namespace convoy::emulator {

/// An error of a kernel, with its location: "reduce.cu:31: block (0, 0, 0), thread (5, 0, 0): …".
struct KernelFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The arguments of a kernel launch.
struct Launch {
  dim3 grid, block;
  std::size_t shared_bytes;      // dynamic
  std::function<void()> thread;  // runs one thread
  bool starts_early = false;     // before the previous kernel has ended
  std::string name{};            // as the program writes it, "" if only its address is known
  dim3 cluster{};                // blocks of a cluster along each axis
  std::size_t max_shared_bytes = kDefaultSharedBytes;  // dynamic and static
};

/// The asynchronous copies of a thread that have not landed.
struct ThreadCopies {
  std::deque<std::vector<PendingCopy>> groups;  // oldest first
  std::vector<PendingCopy> open;                // in no group yet
};

/// Runs clusters, which are single blocks unless the launch says otherwise, one after another. Within a cluster,
/// threads run one at a time, each until it waits or ends, and a block until all its threads wait or have ended.
/// Threads that a barrier releases continue in the given order. All blocks have their shared memory at the same
/// addresses: that of a block which does not run is kept elsewhere, where map_shared() finds it.
class BlockRunner {
 public:
  BlockRunner() = default;
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  /// Runs all blocks of a launch. Throws KernelFault.
  void run(const Launch& launch, Order order, std::mt19937_64& random);

  /// Returns the runner whose run() is active, for functions that a kernel calls.
  static BlockRunner& current() { return *current_runner_; }
  static bool is_running() { return current_runner_ != nullptr; }
  /// Returns the shared memory of the running block: kMaxSharedBytes, of which a launch uses the first ones.
  static const char* shared_memory();
  /// Returns the memory of the blocks of a cluster that do not run, kSlotBytes for each.
  static AccessCounter::Range slots();
  static constexpr std::size_t kSlotBytes = kMaxSharedBytes + 1024;
  static constexpr unsigned kMaxClusterBlocks = 16;

  // Called by the CUDA thread that is running.
  void barrier(Where where);
  /// The same. Returns the number of threads that have passed true.
  int barrier_count(bool predicate, Where where);
  void cluster_arrive(Where where);
  void cluster_wait(Where where);
  void* map_shared(void* shared, unsigned rank, Where where);
  unsigned rank_of_shared(const void* shared, Where where) const;
  dim3 cluster_dim() const { return launch_->cluster; }
  /// Waits for all lanes of the mask. Returns the `bits` of each lane, valid until the thread's next call.
  /// `orders_memory`: whether accesses before it come before those after it, in all lanes.
  const std::uint64_t* converge(unsigned mask, std::uint64_t bits, Where where, bool orders_memory = false);
  /// Returns the address of a static array, which `key` identifies. A launch places its arrays after its
  /// dynamic shared memory, each where a thread first asks for it.
  void* static_shared(const void* key, std::size_t bytes, std::size_t alignment, Declaration declaration);
  /// Names the dynamic shared memory, for messages.
  void name_dynamic_shared(Declaration declaration);
  /// Returns the shared memory that the launch has used: dynamic and static.
  std::size_t used_shared_bytes() const { return used_shared_bytes_; }
  /// Returns the values of all lanes of the warp. All lanes call it together.
  template <class T>
  std::array<T, 32> of_all_lanes(const T& value, Where where) {
    static_assert(sizeof(T) % 8 == 0);
    std::array<T, 32> all;
    for (std::size_t offset = 0; offset < sizeof(T); offset += 8) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, reinterpret_cast<const char*>(&value) + offset, 8);
      const std::uint64_t* const of_lanes = converge(0xffffffffu, bits, where);
      for (std::size_t lane = 0; lane < 32; ++lane)
        std::memcpy(reinterpret_cast<char*>(&all[lane]) + offset, &of_lanes[lane], 8);
    }
    return all;
  }
  unsigned thread() const { return thread_ % in_block(); }
  unsigned lane() const { return thread() % 32; }
  ThreadCopies& copies() { return copies_[thread_]; }
  Warpgroups& warpgroups() { return blocks_[rank_].warpgroups; }
  SharedChunks& chunks() { return blocks_[rank_].chunks; }
  AsyncBarriers& barriers() { return blocks_[rank_].barriers; }
  ThreadClocks& clocks() { return blocks_[rank_].clocks; }
  /// Suspends the running thread, which waits at one of barriers(), until resume() is called for it.
  void suspend(Where where);
  /// Lets threads of the running block go on.
  void resume(std::vector<unsigned> threads);
  /// The running thread waits for the previous kernel. Kernels run one after another here, so this only takes
  /// note.
  void wait_for_previous_kernel() { has_waited_for_kernel_[thread_] = true; }
  [[noreturn]] void fault(const std::string& what, Where where) const;
  /// Ends the block with a report. The running thread never continues: its stack is abandoned.
  [[noreturn]] void abandon(const std::string& what);

 private:
  enum class Status : std::uint8_t {
    not_started,
    ready,
    at_barrier,
    at_warp_operation,
    at_cluster_barrier,
    at_async_barrier,
    ended
  };
  struct Thread {
    Status status = Status::not_started;
    unsigned mask = 0;       // the lanes that it waits for
    Where where{};           // the source location at which it waits
    Fiber* fiber = nullptr;  // the fiber that runs it, while it waits
  };
  /// A thread at the barrier of its cluster: between its arrival and its wait, and how many barriers had completed.
  struct Arrival {
    bool is_pending = false;
    unsigned completed = 0;
  };
  /// The convergence of the lanes of one mask at a shuffle or vote. There are two sets of values: a lane may
  /// still read the last one while other lanes write to the next.
  struct Convergence {
    unsigned mask;
    unsigned waiting = 0;  // lanes
    unsigned turn = 0;     // the set of values in use
    Where where{};
    std::array<std::array<std::uint64_t, 32>, 2> values{};
  };

  struct StaticArray {
    const void* key;
    void* begin;
  };

  /// A block of the running cluster.
  struct Block {
    uint3 index;
    std::deque<unsigned> queue;                          // threads that can run
    std::vector<std::vector<Convergence>> convergences;  // of each warp
    ThreadClocks clocks;
    SharedChunks chunks;
    AsyncBarriers barriers;
    Warpgroups warpgroups;
    unsigned live = 0;              // threads that have not ended
    unsigned at_barrier = 0;        // number of waiting threads
    Where barrier{};                // where they wait
    int votes = 0, last_votes = 0;  // of barrier_count(), and at the last barrier
  };

  unsigned in_block() const { return static_cast<unsigned>(indices_.size()); }
  static unsigned char* slot(unsigned rank);
  void begin_cluster(uint3 cluster);
  void run_cluster();
  void select(unsigned thread);
  void ended();
  void complete_cluster_barrier();
  std::deque<unsigned>* next_queue();
  void run_fiber(Fiber& fiber);
  void enter(unsigned thread);
  void wait();
  void release(std::vector<unsigned> threads);
  void unwind();
  std::vector<unsigned> in_order(std::size_t count);
  Convergence& convergence_of(unsigned warp, unsigned mask);
  std::string to_string(unsigned thread) const;
  std::string state_of(unsigned thread) const;
  std::string describe_waiting(unsigned rank) const;

  static BlockRunner* current_runner_;

  const Launch* launch_ = nullptr;
  std::size_t used_shared_bytes_ = 0;
  std::vector<StaticArray> static_arrays_;
  bool is_dynamic_named_ = false;
  Order order_ = Order::ascending;
  std::mt19937_64* random_ = nullptr;

  std::vector<uint3> indices_;            // threadIdx of each thread of a block
  std::vector<Block> blocks_;             // of the cluster
  unsigned rank_ = 0;                     // of the running one
  unsigned arrived_ = 0, completed_ = 0;  // threads at the barrier of the cluster, and barriers so far
  // Of each thread of the cluster; those of block r begin at r times in_block().
  std::vector<Thread> threads_;
  std::vector<Arrival> arrivals_;
  std::vector<bool> has_waited_for_kernel_;  // by thread
  std::vector<ThreadCopies> copies_;         // of each thread
  unsigned thread_ = 0;                      // the running thread
  std::string fault_;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_fibers_;
  Fiber* fiber_ = nullptr;  // the running fiber
};

}  // namespace convoy::emulator

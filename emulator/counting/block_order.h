// Finds loads of what another block of the same launch has stored, if nothing orders the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace convoy::emulator {

/// The rank of the block that runs in its cluster; 0 without clusters.
inline constinit unsigned running_rank = 0;

/// The order of the memory accesses of different blocks of one launch, as far as the memory model of CUDA
/// guarantees it. A load is ordered after another block's store if
///   - the store comes before a __threadfence(), which comes before an atomic operation of the same thread,
///     and
///   - in the block of the load, an atomic operation comes before a __threadfence() of the same thread, which
///     comes before the load.
/// Blocks of a cluster also order their accesses by the barriers of the cluster.
/// "Before" means in the same thread, or with a __syncthreads() in between. Which atomic operation of one
/// block reads the value of another one's is not checked: blocks run one after another here. (PTX ISA, memory
/// consistency model: release and acquire patterns.)
class BlockOrder {
 public:
  /// A number that a store leaves in the bytes that it writes; 0: no store.
  using Tag = std::uint32_t;

  // Called by the thread that is running, in the order of its accesses.
  Tag store(unsigned thread);
  /// Returns whether a load of a byte is ordered after its last store.
  bool is_ordered(unsigned thread, Tag last_store);
  void fence(unsigned thread);
  void atomic(unsigned thread);

  void barrier();
  void cluster_barrier() { ++phase_; }
  /// The next access is one of another cluster.
  void begin_cluster();

 private:
  /// Consecutive stores of one thread without a barrier or a fence between them.
  struct Stores {
    unsigned block, epoch, thread, phase;
    bool is_released;
  };
  /// The last fence of a thread, and the number of stores before it.
  struct Fence {
    unsigned epoch;
    std::size_t stores;
  };
  /// A fence that comes after an atomic operation.
  struct Acquired {
    unsigned epoch, thread;
  };

  /// A block of the cluster whose accesses are observed.
  struct Block {
    unsigned number;
    std::size_t first;                   // of its stores
    unsigned epoch = 0;                  // barriers so far
    std::size_t open = 0;                // more stores may join these; 0: none
    std::map<unsigned, Fence> fences{};  // by thread
    std::vector<unsigned> atomics{};     // the threads of atomic operations
    std::vector<Acquired> acquired{};
  };
  Block& of_running();

  std::vector<Block> blocks_;                  // by rank
  unsigned first_block_ = 1, next_block_ = 1;  // of the cluster, and after those so far
  unsigned phase_ = 0;                         // barriers of the cluster so far
  std::vector<Stores> stores_{{}};             // that of tag 0 is not used
};

}  // namespace convoy::emulator

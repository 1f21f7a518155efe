// Groups of threads: a cluster of blocks, the block, and tiles of a warp.
#pragma once

#include <cuda_runtime.h>

#include "emulator/program/vector_types.h"

namespace cooperative_groups {

using Where = convoy::emulator::Where;

/// All threads of the block.
class thread_block {
 public:
  static constexpr unsigned kThreads = 0;  // known at run time
  void sync(Where where = Where::current()) const { __syncthreads(where); }
  static unsigned thread_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_index() { return blockIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

/// The blocks of a cluster. A launch without clusters has clusters of one block.
class cluster_group {
 public:
  struct arrival_token {};
  void sync(Where where = Where::current()) const {
    __cluster_barrier_arrive(where);
    __cluster_barrier_wait(where);
  }
  arrival_token barrier_arrive(Where where = Where::current()) const {
    __cluster_barrier_arrive(where);
    return {};
  }
  void barrier_wait(arrival_token&& = {}, Where where = Where::current()) const {
    __cluster_barrier_wait(where);
  }
  static unsigned block_rank() { return __clusterRelativeBlockRank(); }
  static dim3 block_index() { return __clusterRelativeBlockIdx(); }
  static dim3 dim_blocks() { return __clusterDim(); }
  static unsigned num_blocks() { return __clusterSizeInBlocks(); }
  static unsigned thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
  static unsigned num_threads() { return num_blocks() * thread_block::size(); }
  static unsigned size() { return num_threads(); }
  /// Returns where block `rank` has what `address` is in this block.
  template <class T>
  T* map_shared_rank(T* address, int rank, Where where = Where::current()) const {
    return static_cast<T*>(__cluster_map_shared_rank(address, static_cast<unsigned>(rank), where));
  }
  unsigned query_shared_rank(const void* address, Where where = Where::current()) const {
    return __cluster_query_shared_rank(address, where);
  }
};
inline cluster_group this_cluster() { return {}; }

/// `kSize` neighboring lanes of a warp, a power of two.
template <unsigned kSize, class Parent = thread_block>
class thread_block_tile {
  static_assert(kSize >= 1 && kSize <= 32 && (kSize & (kSize - 1)) == 0, "expected a power of two up to 32");

 public:
  static constexpr unsigned kThreads = kSize;
  void sync(Where where = Where::current()) const { __syncwarp(mask(), where); }
  static unsigned thread_rank() { return thread_block::thread_rank() % kSize; }
  static constexpr unsigned size() { return kSize; }
  static constexpr unsigned num_threads() { return kSize; }
  static unsigned meta_group_rank() {
    const unsigned rank = thread_block::thread_rank();
    return (Parent::kThreads == 0 ? rank : rank % Parent::kThreads) / kSize;
  }
  static unsigned meta_group_size() {
    return ((Parent::kThreads == 0 ? thread_block::size() : Parent::kThreads) + kSize - 1) / kSize;
  }

  template <class T>
  T shfl(T value, int source, Where where = Where::current()) const {
    return __shfl_sync(mask(), value, source, kSize, where);
  }
  template <class T>
  T shfl_down(T value, unsigned delta, Where where = Where::current()) const {
    return __shfl_down_sync(mask(), value, delta, kSize, where);
  }
  template <class T>
  T shfl_up(T value, unsigned delta, Where where = Where::current()) const {
    return __shfl_up_sync(mask(), value, delta, kSize, where);
  }
  template <class T>
  T shfl_xor(T value, int lane_mask, Where where = Where::current()) const {
    return __shfl_xor_sync(mask(), value, lane_mask, kSize, where);
  }
  unsigned ballot(int predicate, Where where = Where::current()) const {
    return __ballot_sync(mask(), predicate, where) >> first();
  }
  int any(int predicate, Where where = Where::current()) const {
    return ballot(predicate, where) != 0 ? 1 : 0;
  }
  int all(int predicate, Where where = Where::current()) const {
    return ballot(predicate, where) == mask() >> first() ? 1 : 0;
  }

 private:
  static unsigned first() { return thread_block::thread_rank() % 32 / kSize * kSize; }
  static unsigned mask() { return static_cast<unsigned>((1ull << kSize) - 1) << first(); }
};

template <unsigned kSize, class Parent>
thread_block_tile<kSize, Parent> tiled_partition(const Parent&) {
  static_assert(Parent::kThreads == 0 || kSize <= Parent::kThreads, "expected a tile within its parent");
  return {};
}
template <class Group>
void sync(const Group& group, Where where = Where::current()) {
  group.sync(where);
}

}  // namespace cooperative_groups

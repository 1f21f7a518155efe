// Clusters: up to 16 blocks of a launch that run at the same time, have a common barrier, and read each other's shared
// memory (PTX ISA, "barrier.cluster" and "mapa"). They need a GPU and code of sm_90.
#pragma once

#include <cuda_runtime.h>

namespace convoy::kernels::cuda {

/// Arrives at the barrier of the cluster. All threads of all its blocks must call this and wait_for_cluster() in turn.
__device__ inline void arrive_at_cluster() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  __cluster_barrier_arrive();
#endif
}

/// Blocks the thread until all threads of the cluster have arrived. What they wrote before is visible.
__device__ inline void wait_for_cluster() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  __cluster_barrier_wait();
#endif
}

/// Returns what block `rank` of the cluster has in shared memory where this block has `shared`. That block must not end
/// before.
template <class C>
__device__ C load_from_block(int rank, const C& shared) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned address;
  C value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(&shared))), "r"(rank));
  if constexpr (sizeof(C) == 8)
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(value) : "r"(address) : "memory");
  else
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
#elif !defined(__CUDACC__)
  return *static_cast<const C*>(__cluster_map_shared_rank(&shared, static_cast<unsigned>(rank)));
#else
  return shared;  // no launch of this code has clusters
#endif
}

}  // namespace convoy::kernels::cuda

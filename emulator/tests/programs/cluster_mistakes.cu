// Mistakes with clusters, one per argument, as in mistakes.cu.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <utility>

namespace cg = cooperative_groups;

__global__ void __cluster_dims__(2) leaves_early(float* x) {
  __shared__ float s[32];
  const cg::cluster_group cluster = cg::this_cluster();
  s[threadIdx.x] = x[threadIdx.x];
  cluster.sync();
  if (cluster.block_rank() == 1) return;
  const float* const other = cluster.map_shared_rank(s, 1);  // MISTAKE leaves_early
  x[threadIdx.x] = other[31 - threadIdx.x];                  // MISTAKE leaves_early
}

// The same by the other rank, which usually reads before block 0 ends.
__global__ void __cluster_dims__(2) may_leave_early(float* x) {
  __shared__ float s[32];
  const cg::cluster_group cluster = cg::this_cluster();
  s[threadIdx.x] = x[threadIdx.x];
  const float* const other = cluster.map_shared_rank(s, 1 - cluster.block_rank());
  cluster.sync();
  const float value = other[31 - threadIdx.x];  // MISTAKE may_leave_early
  if (cluster.block_rank() == 1) cluster.sync();
  x[blockIdx.x * 32 + threadIdx.x] = value;
}

__global__ void __cluster_dims__(2) before_the_barrier(float* x) {
  __shared__ float s[32];
  const cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  const float value =
      cluster.map_shared_rank(s, 1 - cluster.block_rank())[threadIdx.x];  // MISTAKE before_the_barrier
  cluster.sync();
  x[blockIdx.x * 32 + threadIdx.x] = value;
}

// An arrival before the write, so that the wait orders nothing.
__global__ void __cluster_dims__(2) arrives_before_it_writes(float* x) {
  __shared__ float s[32];
  const cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  auto token = cluster.barrier_arrive();
  s[threadIdx.x] = x[threadIdx.x];
  cluster.barrier_wait(std::move(token));
  const float value =
      cluster.map_shared_rank(s, 1 - cluster.block_rank())[threadIdx.x];  // MISTAKE arrives_before_it_writes
  cluster.sync();
  x[blockIdx.x * 32 + threadIdx.x] = value;
}

__global__ void __cluster_dims__(2) before_it_begins(float* x) {
  __shared__ float s[32];
  const cg::cluster_group cluster = cg::this_cluster();
  cluster.map_shared_rank(s, 1 - cluster.block_rank())[threadIdx.x] = 1;  // MISTAKE before_it_begins
  cluster.sync();
  x[blockIdx.x * 32 + threadIdx.x] = s[threadIdx.x];
}

__global__ void __cluster_dims__(2) past_the_end(float* x) {
  __shared__ float s[32];
  const cg::cluster_group cluster = cg::this_cluster();
  s[threadIdx.x] = x[threadIdx.x];
  cluster.sync();
  x[threadIdx.x] =
      cluster.map_shared_rank(s, 1 - cluster.block_rank())[threadIdx.x + 1];  // MISTAKE past_the_end
  cluster.sync();
}

__global__ void __cluster_dims__(2) waits_without_arriving(float* x) {
  const cg::cluster_group cluster = cg::this_cluster();
  cluster.barrier_wait();  // MISTAKE waits_without_arriving
  x[threadIdx.x] = 1;
}

__global__ void __cluster_dims__(2) half_at_the_block(float* x) {
  const cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x < 16) __syncthreads();  // MISTAKE half_at_the_block
  cluster.sync();
  x[threadIdx.x] = 1;
}

__global__ void __cluster_dims__(2) no_such_rank(float* x) {
  __shared__ float s[32];
  x[threadIdx.x] = *cg::this_cluster().map_shared_rank(&s[threadIdx.x], 2);  // MISTAKE no_such_rank
}

// Right: sums of both blocks, with a barrier of the block between the halves of that of the cluster.
__global__ void __cluster_dims__(2) right(float* x) {
  __shared__ float s[32], sum;
  const cg::cluster_group cluster = cg::this_cluster();
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = 0;
    for (float value : s) sum += value;
  }
  __syncthreads();
  auto token = cluster.barrier_arrive();
  const float mine = s[31 - threadIdx.x];
  cluster.barrier_wait(std::move(token));
  const float all = sum + *cluster.map_shared_rank(&sum, 1 - cluster.block_rank());
  x[blockIdx.x * 32 + threadIdx.x] = mine / all;
  cluster.sync();
}

int main(int, char** arguments) {
  float* x;
  cudaMalloc(&x, 64 * sizeof(float));
  cudaMemset(x, 0, 64 * sizeof(float));
  const auto is = [&](const char* name) { return std::strcmp(arguments[1], name) == 0; };
  if (is("leaves_early")) leaves_early<<<2, 32>>>(x);
  if (is("may_leave_early")) may_leave_early<<<2, 32>>>(x);
  if (is("before_the_barrier")) before_the_barrier<<<2, 32>>>(x);
  if (is("arrives_before_it_writes")) arrives_before_it_writes<<<2, 32>>>(x);
  if (is("before_it_begins")) before_it_begins<<<2, 32>>>(x);
  if (is("past_the_end")) past_the_end<<<2, 32>>>(x);
  if (is("waits_without_arriving")) waits_without_arriving<<<2, 32>>>(x);
  if (is("half_at_the_block")) half_at_the_block<<<2, 32>>>(x);
  if (is("no_such_rank")) no_such_rank<<<2, 32>>>(x);
  if (is("right")) right<<<2, 32>>>(x);
  if (is("wrong_size")) right<<<3, 32>>>(x);  // MISTAKE wrong_size
  cudaDeviceSynchronize();
  return 0;
}

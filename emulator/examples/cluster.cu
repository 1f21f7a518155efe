// A mean over four times the values that one block holds: the blocks of a cluster read each other's sums from
// shared memory. Also more shared memory than 48 KiB, and a cluster whose size the launch chooses.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

namespace cg = cooperative_groups;

constexpr int kThreads = 128, kBlocks = 4, kPerThread = 128;

// y = x - mean(x) over the kBlocks * kThreads * kPerThread values of a cluster, each of which is loaded once.
__global__ void __cluster_dims__(kBlocks, 1, 1) remove_mean(const float* x, float* y) {
  extern __shared__ float values[];
  __shared__ float sums[kThreads / 32];
  __shared__ float total;
  const cg::cluster_group cluster = cg::this_cluster();
  const int first = blockIdx.x * kThreads * kPerThread + threadIdx.x;
  float sum = 0;
  for (int i = 0; i < kPerThread; ++i) {
    const float value = x[first + i * kThreads];
    values[i * kThreads + threadIdx.x] = value;
    sum += value;
  }
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) total = sums[0] + sums[1] + sums[2] + sums[3];
  cluster.sync();
  float all = 0;  // in the order of ranks, so that all blocks get the same bits
  for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank) all += *cluster.map_shared_rank(&total, rank);
  cluster.sync();  // no block ends before the others have read its sum
  const float mean = all / (kBlocks * kThreads * kPerThread);
  for (int i = 0; i < kPerThread; ++i) y[first + i * kThreads] = values[i * kThreads + threadIdx.x] - mean;
}

// Each block stores its number in the memory of the next one, by instructions of PTX.
__global__ void pass_on(int* result) {
  __shared__ int from;
  const cg::cluster_group cluster = cg::this_cluster();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // all blocks have begun
  const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  unsigned address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(&from))), "r"(next));
  if (threadIdx.x == 0)
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(cluster.block_rank()) : "memory");
  cluster.sync();
  if (threadIdx.x == 0) result[blockIdx.x] = from;
}

int main() {
  constexpr int kBytes = kThreads * kPerThread * sizeof(float);  // 64 KiB
  std::vector<float> host(2 * kBlocks * kThreads * kPerThread);
  for (std::size_t i = 0; i < host.size(); ++i)
    host[i] = static_cast<float>(i % 1024 + i / (host.size() / 2));
  float *x, *y;
  cudaMalloc(&x, host.size() * sizeof(float));
  cudaMalloc(&y, host.size() * sizeof(float));
  cudaMemcpy(x, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice);
  remove_mean<<<2 * kBlocks, kThreads, kBytes>>>(x, y);
  std::printf("without the opt-in: %s\n", cudaGetErrorString(cudaGetLastError()));
  cudaFuncSetAttribute(remove_mean, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  remove_mean<<<2 * kBlocks, kThreads, kBytes>>>(x, y);
  cudaMemcpy(host.data(), y, host.size() * sizeof(float), cudaMemcpyDeviceToHost);
  std::printf("mean removed: %.1f %.1f\n", host[0], host[host.size() - 1]);

  int* result;
  cudaMallocManaged(&result, 16 * sizeof(int));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  cudaLaunchConfig_t config{};
  config.gridDim = 16;
  config.blockDim = 32;
  config.attrs = &attribute;
  config.numAttrs = 1;
  for (unsigned blocks = 8; blocks <= 16; blocks *= 2) {
    attribute.val.clusterDim.x = blocks;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    const cudaError_t status = cudaLaunchKernelEx(&config, pass_on, result);
    cudaDeviceSynchronize();
    std::printf("clusters of %u: %s, block 0 has %d\n", blocks, cudaGetErrorString(status), result[0]);
    cudaGetLastError();
    cudaFuncSetAttribute(pass_on, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  int clusters = 0;
  cudaOccupancyMaxActiveClusters(&clusters, pass_on, &config);
  std::printf("clusters of 16 can run: %s\n", clusters > 0 ? "yes" : "no");
  cudaFree(x);
  cudaFree(y);
  cudaFree(result);
}

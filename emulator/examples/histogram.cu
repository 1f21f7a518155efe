// Counts values from 0 to 15: in shared memory first, then once per block in global memory.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

constexpr int kBins = 16;

__global__ void histogram(const unsigned char* values, int n, unsigned* bins) {
  __shared__ unsigned local[kBins];
  if (threadIdx.x < kBins) local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[values[i]], 1u);
  __syncthreads();
  if (threadIdx.x < kBins) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

int main() {
  const int n = 4096;
  std::vector<unsigned char> values(n);
  for (int i = 0; i < n; ++i) values[i] = static_cast<unsigned char>(i * i % kBins);
  unsigned char* d_values;
  unsigned* d_bins;
  cudaMalloc(&d_values, n);
  cudaMalloc(&d_bins, kBins * sizeof(unsigned));
  cudaMemcpy(d_values, values.data(), n, cudaMemcpyHostToDevice);
  cudaMemset(d_bins, 0, kBins * sizeof(unsigned));
  histogram<<<4, 128>>>(d_values, n, d_bins);
  unsigned bins[kBins];
  cudaMemcpy(bins, d_bins, sizeof(bins), cudaMemcpyDeviceToHost);
  // The squares modulo 16 are 0, 1, 4 and 9: of i % 16 = 0, 4, 8, 12; of 1, 7, 9, 15; of 2, 6, 10, 14; of 3,
  // 5, 11, 13.
  std::printf("%u %u %u %u of %d\n", bins[0], bins[1], bins[4], bins[9], n);
}

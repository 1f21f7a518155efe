// 64 threads add to one variable, without atomics.
#include <cstdio>

__global__ void add(int* result) {
  __shared__ int sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  sum += 1;
  __syncthreads();
  if (threadIdx.x == 0) *result = sum;
}

int main() {
  int *device, host;
  cudaMalloc(&device, sizeof(int));
  add<<<1, 64>>>(device);
  cudaMemcpy(&host, device, sizeof(int), cudaMemcpyDeviceToHost);
  std::printf("sum %d\n", host);
}

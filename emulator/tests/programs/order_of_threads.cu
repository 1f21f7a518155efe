// A result that depends on which thread is the last one.
#include <cuda_runtime.h>

#include <cstdio>

__device__ int last;

__global__ void order_of_threads() { atomicExch(&last, static_cast<int>(threadIdx.x)); }

int main() {
  int value;
  order_of_threads<<<1, 8>>>();
  cudaMemcpyFromSymbol(&value, last, sizeof(value));
  std::printf("%d\n", value);
}

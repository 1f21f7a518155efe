#include <cstdio>

__global__ void hello() { printf("thread %d of block %d\n", threadIdx.x, blockIdx.x); }

int main() {
  hello<<<2, 3>>>();
  cudaDeviceSynchronize();
}

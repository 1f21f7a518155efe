// A program of several files: kernels in a header, called by a host function in another source.
#include "headers.cuh"

#include <cuda_runtime.h>

int sum_of_squares(int n) {
  int *d_sum, sum = 0;
  cudaMalloc(&d_sum, sizeof(int));
  cudaMemset(d_sum, 0, sizeof(int));
  add_squares<int><<<(n + 31) / 32, 32>>>(d_sum, n);
  cudaMemcpy(&sum, d_sum, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_sum);
  return sum;
}

#include <cstdio>
#include <vector>

__global__ void twice(float* x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] = 2 * x[i];
}

int main() {
  const int n = 1000, bytes = n * sizeof(float);
  std::vector<float> host(n, 1.5f);
  float* x;
  cudaMalloc(&x, bytes);
  cudaMemcpy(x, host.data(), bytes, cudaMemcpyHostToDevice);
  twice<<<4, 256>>>(x);
  cudaMemcpy(host.data(), x, bytes, cudaMemcpyDeviceToHost);
  cudaFree(x);
  printf("x[999] = %.1f\n", host[999]);
}

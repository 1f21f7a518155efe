#include <cstdio>

// The sum of 256 ones, without a barrier between the rounds.
__global__ void sum(float* y) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = 1;
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    if (t < d) s[t] += s[t + d];
  }
  if (t == 0) *y = s[0];
}

int main() {
  float host, *y;
  cudaMalloc(&y, sizeof(float));
  sum<<<1, 256>>>(y);
  cudaMemcpy(&host, y, sizeof(float), cudaMemcpyDeviceToHost);
  printf("%.0f\n", host);
}

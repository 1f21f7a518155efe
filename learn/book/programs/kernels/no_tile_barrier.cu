#include <cstdio>

// The transpose by a tile, without the barrier between the writes and the reads.
__global__ void tile(const float* x, float* y) {
  __shared__ float s[32][32];
  s[threadIdx.y][threadIdx.x] = x[threadIdx.y * 32 + threadIdx.x];
  y[threadIdx.y * 32 + threadIdx.x] = s[threadIdx.x][threadIdx.y];
}

int main() {
  float x[1024], *d_x, *d_y;
  for (int i = 0; i < 1024; ++i) x[i] = i;
  cudaMalloc(&d_x, sizeof(x));
  cudaMalloc(&d_y, sizeof(x));
  cudaMemcpy(d_x, x, sizeof(x), cudaMemcpyHostToDevice);
  tile<<<1, dim3(32, 32)>>>(d_x, d_y);
  cudaMemcpy(x, d_y, sizeof(x), cudaMemcpyDeviceToHost);
  printf("y[1][0] = %.0f\n", x[32]);
}

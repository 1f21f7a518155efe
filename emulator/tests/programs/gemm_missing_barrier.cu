// The GEMM of ../../examples/gemm.cu without the barrier before the tiles are overwritten.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

constexpr int kTile = 16;

__global__ void gemm(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int column = blockIdx.x * kTile + x, row = blockIdx.y * kTile + y;
  float sum = 0;
  for (int k = 0; k < n; k += kTile) {
    tile_a[y][x] = a[row * n + k + x];
    tile_b[y][x] = b[(k + y) * n + column];
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += tile_a[y][i] * tile_b[i][x];
  }
  c[row * n + column] = sum;
}

int main() {
  const int n = 32, bytes = n * n * sizeof(float);
  std::vector<float> a(n * n, 1.0f), c(n * n);
  float *d_a, *d_c;
  cudaMalloc(&d_a, bytes);
  cudaMalloc(&d_c, bytes);
  cudaMemcpy(d_a, a.data(), bytes, cudaMemcpyHostToDevice);
  gemm<<<dim3(n / kTile, n / kTile), dim3(kTile, kTile)>>>(d_a, d_a, d_c, n);
  cudaMemcpy(c.data(), d_c, bytes, cudaMemcpyDeviceToHost);
  std::printf("%.0f\n", c[0]);
}

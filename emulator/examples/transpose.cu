// y = transposed x, in three ways.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

// Neighboring lanes store to different rows.
__global__ void naive(const float* x, float* y, int n) {
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) y[column * n + row + k] = x[(row + k) * n + column];
}

// Through a tile. Without padding, the words of a column are all in one bank.
template <int kPadding>
__global__ void tiled(const float* x, float* y, int n) {
  __shared__ float tile[32][32 + kPadding];
  int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = x[(row + k) * n + column];
  __syncthreads();
  column = blockIdx.y * 32 + threadIdx.x;
  row = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) y[(row + k) * n + column] = tile[threadIdx.x][threadIdx.y + k];
}

int main() {
  const int n = 64, bytes = n * n * sizeof(float);
  std::vector<float> x(n * n), y(n * n);
  for (int i = 0; i < n * n; ++i) x[i] = static_cast<float>(i);
  float *d_x, *d_y;
  cudaMalloc(&d_x, bytes);
  cudaMalloc(&d_y, bytes);
  cudaMemcpy(d_x, x.data(), bytes, cudaMemcpyHostToDevice);
  const auto show = [&](const char* name) {
    cudaMemcpy(y.data(), d_y, bytes, cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (int i = 0; i < n * n; ++i) wrong += y[i] != x[i % n * n + i / n];
    std::printf("%s: %d wrong\n", name, wrong);
  };
  const dim3 blocks(n / 32, n / 32), threads(32, 8);
  naive<<<blocks, threads>>>(d_x, d_y, n);
  show("naive");
  tiled<0><<<blocks, threads>>>(d_x, d_y, n);
  show("tile");
  tiled<1><<<blocks, threads>>>(d_x, d_y, n);
  show("padded tile");
}

// The sum of a block's 256 values, in four ways. `cuemu count` shows what each costs.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

// Threads whose index is a multiple of 2, 4, 8, …
__global__ void modulo(const float* x, float* y) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  s[t] = x[blockIdx.x * 256 + t];
  __syncthreads();
  for (int d = 1; d < 256; d *= 2) {
    if (t % (2 * d) == 0) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

// Neighboring threads, with elements that are apart: they are in the same banks.
__global__ void strided(const float* x, float* y) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  s[t] = x[blockIdx.x * 256 + t];
  __syncthreads();
  for (int d = 1; d < 256; d *= 2) {
    const int i = 2 * d * t;
    if (i < 256) s[i] += s[i + d];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

// Neighboring threads and elements.
__global__ void sequential(const float* x, float* y) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  s[t] = x[blockIdx.x * 256 + t];
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

// Shuffles within each warp, then one value per warp.
__global__ void shuffles(const float* x, float* y) {
  __shared__ float s[8];
  const int t = threadIdx.x;
  float v = x[blockIdx.x * 256 + t];
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  if (t % 32 == 0) s[t / 32] = v;
  __syncthreads();
  if (t == 0) {
    for (int w = 1; w < 8; ++w) v += s[w];
    y[blockIdx.x] = v;
  }
}

int main() {
  const int blocks = 16, n = 256 * blocks;
  std::vector<float> x(n), y(blocks);
  float expected = 0;
  for (int i = 0; i < n; ++i) expected += x[i] = static_cast<float>(i % 7);
  float *d_x, *d_y;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMalloc(&d_y, blocks * sizeof(float));
  cudaMemcpy(d_x, x.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  const auto show = [&](const char* name) {
    cudaMemcpy(y.data(), d_y, blocks * sizeof(float), cudaMemcpyDeviceToHost);
    float sum = 0;
    for (const float value : y) sum += value;
    std::printf("%s: %.0f, expected %.0f\n", name, sum, expected);
  };
  modulo<<<blocks, 256>>>(d_x, d_y);
  show("modulo");
  strided<<<blocks, 256>>>(d_x, d_y);
  show("strided");
  sequential<<<blocks, 256>>>(d_x, d_y);
  show("sequential");
  shuffles<<<blocks, 256>>>(d_x, d_y);
  show("shuffles");
}

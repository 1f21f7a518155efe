// A softmax whose second reduction overwrites the result of the first one while other threads read it.
#include <cuda_runtime.h>

#include <cfloat>
#include <cstdio>
#include <vector>

constexpr int kThreads = 64;

__device__ float block_reduce(float value, float* shared, bool is_sum) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int d = kThreads / 2; d > 0; d /= 2) {
    if (static_cast<int>(threadIdx.x) < d) {
      const float other = shared[threadIdx.x + d];
      shared[threadIdx.x] = is_sum ? shared[threadIdx.x] + other : fmaxf(shared[threadIdx.x], other);
    }
    __syncthreads();
  }
  return shared[0];
}

__global__ void softmax(const float* x, float* y, int columns) {
  __shared__ float shared[kThreads];
  float maximum = -FLT_MAX;
  for (int i = threadIdx.x; i < columns; i += kThreads) maximum = fmaxf(maximum, x[i]);
  maximum = block_reduce(maximum, shared, false);
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += kThreads) sum += expf(x[i] - maximum);
  sum = block_reduce(sum, shared, true);
  for (int i = threadIdx.x; i < columns; i += kThreads) y[i] = expf(x[i] - maximum) / sum;
}

int main() {
  const int columns = 100, bytes = columns * sizeof(float);
  std::vector<float> x(columns, 1.0f), y(columns);
  float *d_x, *d_y;
  cudaMalloc(&d_x, bytes);
  cudaMalloc(&d_y, bytes);
  cudaMemcpy(d_x, x.data(), bytes, cudaMemcpyHostToDevice);
  softmax<<<1, kThreads>>>(d_x, d_y, columns);
  cudaMemcpy(y.data(), d_y, bytes, cudaMemcpyDeviceToHost);
  std::printf("%.4f\n", y[0]);
}

// The softmax of each row, by a block per row.
#include <cuda_runtime.h>

#include <cfloat>
#include <cstdio>
#include <vector>

constexpr int kThreads = 64;

// Returns the maximum, or the sum, of a value of each thread. `shared` may be used again at once.
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
  const float result = shared[0];
  __syncthreads();
  return result;
}

__global__ void softmax(const float* x, float* y, int columns) {
  __shared__ float shared[kThreads];
  x += blockIdx.x * columns;
  y += blockIdx.x * columns;
  float maximum = -FLT_MAX;
  for (int i = threadIdx.x; i < columns; i += kThreads) maximum = fmaxf(maximum, x[i]);
  maximum = block_reduce(maximum, shared, false);
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += kThreads) sum += expf(x[i] - maximum);
  sum = block_reduce(sum, shared, true);
  for (int i = threadIdx.x; i < columns; i += kThreads) y[i] = expf(x[i] - maximum) / sum;
}

int main() {
  const int rows = 3, columns = 100, bytes = rows * columns * sizeof(float);
  std::vector<float> x(rows * columns), y(rows * columns);
  for (int i = 0; i < rows * columns; ++i) x[i] = static_cast<float>(i % 11);
  float *d_x, *d_y;
  cudaMalloc(&d_x, bytes);
  cudaMalloc(&d_y, bytes);
  cudaMemcpy(d_x, x.data(), bytes, cudaMemcpyHostToDevice);
  softmax<<<rows, kThreads>>>(d_x, d_y, columns);
  cudaMemcpy(y.data(), d_y, bytes, cudaMemcpyDeviceToHost);
  for (int row = 0; row < rows; ++row) {
    double sum = 0;
    for (int i = 0; i < columns; ++i) sum += y[row * columns + i];
    std::printf("row %d: the sum is %.4f\n", row, sum);
  }
}

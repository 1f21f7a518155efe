// y = softmax(relu(x + bias)) along rows: with six kernels, with two, and with one.
#include <cmath>
#include <cstdio>
#include <vector>

const int rows = 128, columns = 512, n = rows * columns;

__global__ void add_bias(const float* x, const float* bias, float* y) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  y[i] = x[i] + bias[i % columns];
}

__global__ void relu(const float* x, float* y) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  y[i] = fmaxf(x[i], 0);
}

__device__ float warp_maximum(float value) {
  for (int d = 16; d > 0; d /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, d));
  return value;
}

__device__ float warp_sum(float value) {
  for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffff, value, d);
  return value;
}

// One warp per row, eight rows per block.
__global__ void row_maximum(const float* x, float* maximum) {
  const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float largest = -INFINITY;
  for (int i = lane; i < columns; i += 32) largest = fmaxf(largest, x[row * columns + i]);
  largest = warp_maximum(largest);
  if (lane == 0) maximum[row] = largest;
}

__global__ void exponentials(const float* x, const float* maximum, float* y) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  y[i] = expf(x[i] - maximum[i / columns]);
}

__global__ void row_sum(const float* x, float* sum) {
  const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float total = 0;
  for (int i = lane; i < columns; i += 32) total += x[row * columns + i];
  total = warp_sum(total);
  if (lane == 0) sum[row] = total;
}

__global__ void divide(const float* x, const float* sum, float* y) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  y[i] = x[i] / sum[i / columns];
}

__global__ void add_bias_relu(const float* x, const float* bias, float* y) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  y[i] = fmaxf(x[i] + bias[i % columns], 0);
}

__global__ void softmax(const float* x, float* y) {
  const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  x += row * columns;
  y += row * columns;
  float largest = -INFINITY, total = 0;
  for (int i = lane; i < columns; i += 32) largest = fmaxf(largest, x[i]);
  largest = warp_maximum(largest);
  for (int i = lane; i < columns; i += 32) total += expf(x[i] - largest);
  total = warp_sum(total);
  for (int i = lane; i < columns; i += 32) y[i] = expf(x[i] - largest) / total;
}

__global__ void fused(const float* x, const float* bias, float* y) {
  const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float value[columns / 32], largest = -INFINITY, total = 0;
  for (int j = 0; j < columns / 32; ++j) {
    const int i = j * 32 + lane;
    value[j] = fmaxf(x[row * columns + i] + bias[i], 0);
    largest = fmaxf(largest, value[j]);
  }
  largest = warp_maximum(largest);
  for (int j = 0; j < columns / 32; ++j) total += value[j] = expf(value[j] - largest);
  total = warp_sum(total);
  for (int j = 0; j < columns / 32; ++j) y[row * columns + j * 32 + lane] = value[j] / total;
}

int main() {
  std::vector<float> x(n), bias(columns), y(n);
  for (int i = 0; i < n; ++i) x[i] = float(i * 7 % 11) - 5;
  for (int i = 0; i < columns; ++i) bias[i] = float(i % 3) - 1;
  float *d_x, *d_bias, *d_y, *of_row;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMalloc(&d_bias, columns * sizeof(float));
  cudaMalloc(&d_y, n * sizeof(float));
  cudaMalloc(&of_row, rows * sizeof(float));
  cudaMemcpy(d_x, x.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(d_bias, bias.data(), columns * sizeof(float), cudaMemcpyHostToDevice);
  const auto show = [&](const char* name) {
    cudaMemcpy(y.data(), d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
    cudaMemset(d_y, 0, n * sizeof(float));
    int wrong = 0;
    for (int row = 0; row < rows; ++row) {
      double total = 0;
      const auto exponential = [&](int i) {
        return std::exp(std::fmax(x[row * columns + i] + bias[i], 0.0));
      };
      for (int i = 0; i < columns; ++i) total += exponential(i);
      for (int i = 0; i < columns; ++i)
        wrong += std::fabs(y[row * columns + i] - exponential(i) / total) > 1e-6 * exponential(i) / total;
    }
    printf("%s: %d wrong\n", name, wrong);
  };
  add_bias<<<n / 256, 256>>>(d_x, d_bias, d_y);
  relu<<<n / 256, 256>>>(d_y, d_y);
  row_maximum<<<rows / 8, 256>>>(d_y, of_row);
  exponentials<<<n / 256, 256>>>(d_y, of_row, d_y);
  row_sum<<<rows / 8, 256>>>(d_y, of_row);
  divide<<<n / 256, 256>>>(d_y, of_row, d_y);
  show("six kernels");
  add_bias_relu<<<n / 256, 256>>>(d_x, d_bias, d_y);
  softmax<<<rows / 8, 256>>>(d_y, d_y);
  show("two kernels");
  fused<<<rows / 8, 256>>>(d_x, d_bias, d_y);
  show("one kernel");
}

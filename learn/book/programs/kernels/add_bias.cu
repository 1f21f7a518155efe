#include <cstdio>
#include <vector>

// Adds bias[column] to each element of a matrix.
__global__ void add_bias(int rows, int columns, const float* bias, float* x) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < rows && column < columns) x[row * columns + column] += bias[column];
}

int main() {
  const int rows = 37, columns = 65, n = rows * columns;
  std::vector<float> x(n, 0.0f), bias(columns);
  for (int column = 0; column < columns; ++column) bias[column] = column;
  float *d_x, *d_bias;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMalloc(&d_bias, columns * sizeof(float));
  cudaMemcpy(d_x, x.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(d_bias, bias.data(), columns * sizeof(float), cudaMemcpyHostToDevice);
  dim3 threads(32, 8), blocks((columns + 31) / 32, (rows + 7) / 8);
  add_bias<<<blocks, threads>>>(rows, columns, d_bias, d_x);
  cudaMemcpy(x.data(), d_x, n * sizeof(float), cudaMemcpyDeviceToHost);
  printf("x[36][64] = %.0f\n", x[36 * columns + 64]);
}

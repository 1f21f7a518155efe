// Threads beyond the last column compute elements of the next row.
__global__ void add_bias(const float* x, const float* bias, float* y, int rows, int columns) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row * columns + column < rows * columns)
    y[row * columns + column] = x[row * columns + column] + bias[column];
}

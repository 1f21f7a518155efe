// The fast index is that of the row: the values are right, and each lane needs a sector of its own.
__global__ void add_bias(const float* x, const float* bias, float* y, int rows, int columns) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  const int column = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < rows && column < columns) y[row * columns + column] = x[row * columns + column] + bias[column];
}

// y = x + bias: y[row][column] = x[row][column] + bias[column] for a matrix of rows x columns floats, row after row.
__global__ void add_bias(const float* x, const float* bias, float* y, int rows, int columns) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows && column < columns) y[row * columns + column] = x[row * columns + column] + bias[column];
}

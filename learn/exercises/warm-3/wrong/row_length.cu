// A row has `columns` elements, not `rows`.
__global__ void add_bias(const float* x, const float* bias, float* y, int rows, int columns) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows && column < columns) y[row * rows + column] = x[row * columns + column] + bias[column];
}

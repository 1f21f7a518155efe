// y = x + bias: y[row][column] = x[row][column] + bias[column] for a matrix of rows x columns floats, row after row.
//
// Blocks have 16 x 16 threads, and the grid has enough of them in both dimensions for the larger of rows and columns.
// The threads of a warp are those with neighboring threadIdx.x.
__global__ void add_bias(const float* x, const float* bias, float* y, int rows, int columns) {
  // TODO: compute row and column, and the element of y if there is one.
}

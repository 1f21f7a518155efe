// y = x transposed, y[column][row] = x[row][column], for n x n floats. n is a multiple of 32.
//
// The grid has n/32 x n/32 blocks of 32 x 8 threads. A block transposes a tile of 32 x 32 floats, a thread 4 of them.
// The values are right already, but neighboring lanes store to different rows of y.
__global__ void transpose(const float* x, float* y, int n) {
  // TODO: write the tile to a __shared__ array, row by row of x; then write y from it, row by row of y.
  const int column = 32 * blockIdx.x + threadIdx.x;
  const int row = 32 * blockIdx.y + threadIdx.y;
  for (int k = 0; k < 32; k += 8) y[column * n + row + k] = x[(row + k) * n + column];
}

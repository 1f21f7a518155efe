// y = x transposed, y[column][row] = x[row][column], for n x n floats. n is a multiple of 32.
//
// The values are right, and sectors are read and written in full. But the lanes of a warp read a column of the tile.
// Words of shared memory are in 32 banks, word i in bank i % 32, and a wavefront reads one word per bank.
__global__ void transpose(const float* x, float* y, int n) {
  __shared__ float tile[32][32];  // TODO: let the words of a column be in different banks
  int column = 32 * blockIdx.x + threadIdx.x;
  int row = 32 * blockIdx.y + threadIdx.y;
  for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = x[(row + k) * n + column];
  __syncthreads();
  // The tile of y is that of the exchanged block. Neighboring lanes have neighboring columns here, too.
  column = 32 * blockIdx.y + threadIdx.x;
  row = 32 * blockIdx.x + threadIdx.y;
  for (int k = 0; k < 32; k += 8) y[(row + k) * n + column] = tile[threadIdx.x][threadIdx.y + k];
}

// The tile is read by rows, so the stores are by columns, as without a tile.
__global__ void transpose(const float* x, float* y, int n) {
  __shared__ float tile[32][32];
  int column = 32 * blockIdx.x + threadIdx.x;
  int row = 32 * blockIdx.y + threadIdx.y;
  for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = x[(row + k) * n + column];
  __syncthreads();
  column = 32 * blockIdx.y;
  row = 32 * blockIdx.x;
  for (int k = 0; k < 32; k += 8) {
    const int i = threadIdx.y + k;  // row of the tile
    const float value = tile[i][threadIdx.x];
    y[(row + threadIdx.x) * n + column + i] = value;
  }
}

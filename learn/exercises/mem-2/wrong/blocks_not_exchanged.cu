// Each block writes the tile of y where it has read that of x.
__global__ void transpose(const float* x, float* y, int n) {
  __shared__ float tile[32][32];
  int column = 32 * blockIdx.x + threadIdx.x;
  int row = 32 * blockIdx.y + threadIdx.y;
  for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = x[(row + k) * n + column];
  __syncthreads();
  column = 32 * blockIdx.x + threadIdx.x;
  row = 32 * blockIdx.y + threadIdx.y;
  for (int k = 0; k < 32; k += 8) y[(row + k) * n + column] = tile[threadIdx.x][threadIdx.y + k];
}

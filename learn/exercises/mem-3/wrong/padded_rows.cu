// A row more does not change in which bank a word is.
__global__ void transpose(const float* x, float* y, int n) {
  __shared__ float tile[33][32];
  int column = 32 * blockIdx.x + threadIdx.x;
  int row = 32 * blockIdx.y + threadIdx.y;
  for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = x[(row + k) * n + column];
  __syncthreads();
  // The tile of y is that of the exchanged block. Neighboring lanes have neighboring columns here, too.
  column = 32 * blockIdx.y + threadIdx.x;
  row = 32 * blockIdx.x + threadIdx.y;
  for (int k = 0; k < 32; k += 8) y[(row + k) * n + column] = tile[threadIdx.x][threadIdx.y + k];
}

// Threads without an element of c do not come to the barriers.
__global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float tile_a[16][16], tile_b[16][16];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int column = blockIdx.x * 16 + tx;
  const int row = blockIdx.y * 16 + ty;
  if (row >= m || column >= n) return;
  float sum = 0;
  for (int begin = 0; begin < k; begin += 16) {
    tile_a[ty][tx] = row < m && begin + tx < k ? a[row * k + begin + tx] : 0;
    tile_b[ty][tx] = begin + ty < k && column < n ? b[(begin + ty) * n + column] : 0;
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += tile_a[ty][i] * tile_b[i][tx];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

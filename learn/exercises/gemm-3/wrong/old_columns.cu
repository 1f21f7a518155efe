// Stores the sums where gemm-2 did.
__global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ __align__(16) float slab_a[16][68], slab_b[16][68];
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
      const float4 left = *reinterpret_cast<const float4*>(&slab_a[i][4 * ty]);
      const float4 right = *reinterpret_cast<const float4*>(&slab_b[i][4 * tx]);
      const float rows[4] = {left.x, left.y, left.z, left.w};
      const float columns[4] = {right.x, right.y, right.z, right.w};
      for (int r = 0; r < 4; ++r)
        for (int s = 0; s < 4; ++s) sum[r][s] += rows[r] * columns[s];
    }
    __syncthreads();
  }
  for (int r = 0; r < 4; ++r)
    for (int s = 0; s < 4; ++s) {
      const int row = first_row + r * 16 + ty, column = first_column + s * 16 + tx;
      if (row < m && column < n) c[row * n + column] = sum[r][s];
    }
}

// c = a b for matrices of floats, row after row: a has m x k elements, b k x n, and c m x n.
//
// Blocks have 16 x 16 threads and compute 64 x 64 elements of c, so each thread computes 16 of them. The values are right, and
// each product loads two elements from global memory. Use shared memory as in gemm-1, for 16 columns of a and 16 rows of b at
// a time. Then let a thread read 4 elements of each, keep them in registers, and compute 16 products.
__global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  // TODO: __shared__ float slab_a[16][66], slab_b[16][66]; two columns of padding avoid conflicts
  for (int r = 0; r < 4; ++r)
    for (int s = 0; s < 4; ++s) {
      const int row = blockIdx.y * 64 + r * 16 + threadIdx.y, column = blockIdx.x * 64 + s * 16 + threadIdx.x;
      if (row >= m || column >= n) continue;
      float sum = 0;
      for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
      c[row * n + column] = sum;
    }
}

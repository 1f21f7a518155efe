// c = a b for matrices of floats, row after row: a has m x k elements, b k x n, and c m x n.
//
// Blocks have 16 x 16 threads, one per element of c. The values are right, but the 16 threads of a row of the block load
// the same elements of a, and the 16 of a column those of b. Shared memory holds a tile of each: for 16 columns of a and 16
// rows of b at a time, each thread loads one element of a and one of b, and reads 32 of the tiles.
__global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  const int column = blockIdx.x * 16 + threadIdx.x;
  const int row = blockIdx.y * 16 + threadIdx.y;
  // TODO: __shared__ float tile_a[16][16], tile_b[16][16];
  float sum = 0;
  if (row < m && column < n) {
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
    c[row * n + column] = sum;
  }
}

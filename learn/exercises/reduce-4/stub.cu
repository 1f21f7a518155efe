// y[r] = the sum of row r of x, which has rows x columns floats. Block b adds rows b, b + gridDim.x, …
//
// Blocks have 256 threads: 8 warps. Each thread adds its elements of a row; then each warp adds the values of its lanes by
// __shfl_xor_sync or __shfl_down_sync, without shared memory and without a barrier. Only the 8 sums of the warps are
// shared.

// Returns the sum of `value` over the 32 lanes of the warp, at least in lane 0. All lanes call it.
__device__ float warp_sum(float value) {
  // TODO: in 5 rounds, add the value of another lane.
  return value;
}

__global__ void row_sums(const float* x, float* y, int rows, int columns) {
  __shared__ float partial[8];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    float sum = 0;
    for (int column = t; column < columns; column += 256) sum += x[row * columns + column];
    sum = warp_sum(sum);
    // TODO: lane 0 of each warp writes partial[warp]; the first warp adds the 8 values and writes y[row].
    // Two barriers: before the values are read, and before the next row overwrites them.
  }
}

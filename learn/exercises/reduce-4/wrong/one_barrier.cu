// The next row overwrites partial sums that the first warp may still read.

// Returns the sum of `value` over the 32 lanes of the warp, in each of them. All lanes call it.
__device__ float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffff, value, distance);
  return value;
}

__global__ void row_sums(const float* x, float* y, int rows, int columns) {
  __shared__ float partial[8];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    float sum = 0;
    for (int column = t; column < columns; column += 256) sum += x[row * columns + column];
    sum = warp_sum(sum);
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    if (warp == 0) {
      sum = warp_sum(lane < 8 ? partial[lane] : 0);
      if (lane == 0) y[row] = sum;
    }
  }
}

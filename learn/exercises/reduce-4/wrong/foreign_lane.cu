// Eight lanes are in the mask, but the first of five rounds reads the value of lane 16.

// Returns the sum of `value` over the lanes of the warp that are in the mask.
__device__ float warp_sum(float value, unsigned mask) {
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(mask, value, distance);
  return value;
}

__global__ void row_sums(const float* x, float* y, int rows, int columns) {
  __shared__ float partial[8];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    float sum = 0;
    for (int column = t; column < columns; column += 256) sum += x[row * columns + column];
    sum = warp_sum(sum, 0xffffffff);
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    if (t < 8) {
      sum = warp_sum(partial[lane], 0xff);
      if (lane == 0) y[row] = sum;
    }
    __syncthreads();
  }
}

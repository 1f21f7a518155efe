// The mean of the squares minus the square of the mean: one read, and the digits of large numbers are lost.
__global__ void moments(const float* x, float* mean, float* variance, int rows, int channels) {
  __shared__ float sums[8][32], squares_of[8][32];
  const int lane = threadIdx.x, warp = threadIdx.y, channel = blockIdx.x * 32 + lane;
  float sum = 0, squares = 0;
  if (channel < channels)
    for (int row = warp; row < rows; row += 8) {
      const float value = x[row * channels + channel];
      sum += value;
      squares += value * value;
    }
  sums[warp][lane] = sum;
  squares_of[warp][lane] = squares;
  __syncthreads();
  if (warp > 0 || channel >= channels) return;
  for (int other = 1; other < 8; ++other) {
    sum += sums[other][lane];
    squares += squares_of[other][lane];
  }
  mean[channel] = sum / rows;
  variance[channel] = squares / rows - sum / rows * (sum / rows);
}

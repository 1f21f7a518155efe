// The mean and the variance of each channel of x, which has rows x channels elements. A block has 32 x 8 threads and 32 channels:
// lane threadIdx.x has a channel, and the 8 warps, threadIdx.y, have the rows in turns.
struct Moments {
  float count, mean, squares;  // squares: the sum of the squared distances from the mean
};

__device__ void add(Moments& m, float x) {
  m.count += 1;
  const float distance = x - m.mean;
  m.mean += distance / m.count;
  m.squares += distance * (x - m.mean);
}

__device__ Moments merge(const Moments& a, const Moments& b) {
  if (b.count == 0) return a;
  const float count = a.count + b.count, distance = b.mean - a.mean;
  return {count, a.mean + distance * b.count / count,
          a.squares + b.squares + distance * distance * a.count * b.count / count};
}

__global__ void moments(const float* x, float* mean, float* variance, int rows, int channels) {
  __shared__ Moments parts[8][32];
  const int lane = threadIdx.x, warp = threadIdx.y, channel = blockIdx.x * 32 + lane;
  Moments m = {0, 0, 0};
  if (channel < channels)
    for (int row = warp; row < rows; row += 8) add(m, x[row * channels + channel]);
  parts[warp][lane] = m;
  __syncthreads();
  if (warp > 0 || channel >= channels) return;
  for (int other = 1; other < 8; ++other) m = merge(m, parts[other][lane]);
  mean[channel] = m.mean;
  variance[channel] = m.squares / m.count;
}

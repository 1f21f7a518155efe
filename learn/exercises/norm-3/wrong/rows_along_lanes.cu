// Loads x once, and neighboring lanes have neighboring rows: each lane has a sector of its own.
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
  const int lane = threadIdx.x, warp = threadIdx.y;
  for (int i = 0; i < 4; ++i) {  // each warp has 4 channels, one after another
    const int channel = blockIdx.x * 32 + warp * 4 + i;
    if (channel >= channels) return;
    Moments m = {0, 0, 0};
    for (int row = lane; row < rows; row += 32) add(m, x[row * channels + channel]);
    __syncwarp();
    parts[warp][lane] = m;
    __syncwarp();
    if (lane > 0) continue;
    for (int other = 1; other < 32; ++other) m = merge(m, parts[warp][other]);
    mean[channel] = m.mean;
    variance[channel] = m.squares / m.count;
  }
}

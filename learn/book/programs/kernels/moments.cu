// Mean and variance of each channel of x[rows][channels], in five kernels: how often, and in which order, they read x.
#include <cmath>
#include <cstdio>
#include <vector>

const int rows = 1024, channels = 64;

struct Moments {
  float count, mean, squares;
};

__device__ void add(Moments& m, float x) {
  m.count += 1;
  const float distance = x - m.mean;
  m.mean += distance / m.count;
  m.squares += distance * (x - m.mean);
}

__device__ Moments merge(const Moments& a, const Moments& b) {
  const float count = a.count + b.count, distance = b.mean - a.mean;
  return {count, a.mean + distance * b.count / count,
          a.squares + b.squares + distance * distance * a.count * b.count / count};
}

// The sum of a block of 256 threads.
__device__ float block_sum(float value) {
  __shared__ float partials[8];
  for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffff, value, d);
  if (threadIdx.x % 32 == 0) partials[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (int warp = 0; warp < 8; ++warp) value += partials[warp];
  __syncthreads();
  return value;
}

// Two reads. A block per channel, and a thread per row.
__global__ void strided(const float* x, float* mean, float* variance) {
  const int channel = blockIdx.x;
  float sum = 0, squares = 0;
  for (int row = threadIdx.x; row < rows; row += 256) sum += x[row * channels + channel];
  const float center = block_sum(sum) / rows;
  for (int row = threadIdx.x; row < rows; row += 256) {
    const float distance = x[row * channels + channel] - center;
    squares += distance * distance;
  }
  squares = block_sum(squares);
  if (threadIdx.x == 0) mean[channel] = center, variance[channel] = squares / rows;
}

// The sum of the eight warps of a block, for each lane.
__device__ float sum_of_warps(float value) {
  __shared__ float partials[8][32];
  partials[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  value = 0;
  for (int warp = 0; warp < 8; ++warp) value += partials[warp][threadIdx.x];
  __syncthreads();
  return value;
}

// Two reads. A lane per channel, and a warp per row.
__global__ void neighbors(const float* x, float* mean, float* variance) {
  const int channel = blockIdx.x * 32 + threadIdx.x;
  float sum = 0, squares = 0;
  for (int row = threadIdx.y; row < rows; row += 8) sum += x[row * channels + channel];
  const float center = sum_of_warps(sum) / rows;
  for (int row = threadIdx.y; row < rows; row += 8) {
    const float distance = x[row * channels + channel] - center;
    squares += distance * distance;
  }
  squares = sum_of_warps(squares);
  if (threadIdx.y == 0) mean[channel] = center, variance[channel] = squares / rows;
}

// One read: the mean of the squares minus the square of the mean.
__global__ void of_squares(const float* x, float* mean, float* variance) {
  const int channel = blockIdx.x * 32 + threadIdx.x;
  float sum = 0, squares = 0;
  for (int row = threadIdx.y; row < rows; row += 8) {
    const float value = x[row * channels + channel];
    sum += value, squares += value * value;
  }
  const float center = sum_of_warps(sum) / rows;
  squares = sum_of_warps(squares);
  if (threadIdx.y == 0) mean[channel] = center, variance[channel] = squares / rows - center * center;
}

// One read: each thread corrects its moments, and the first warp merges those of all.
__global__ void one_read(const float* x, float* mean, float* variance) {
  __shared__ float means[8][32], squares[8][32];
  const int lane = threadIdx.x, warp = threadIdx.y, channel = blockIdx.x * 32 + lane;
  Moments m = {0, 0, 0};
  for (int row = warp; row < rows; row += 8) add(m, x[row * channels + channel]);
  means[warp][lane] = m.mean, squares[warp][lane] = m.squares;
  __syncthreads();
  if (warp > 0) return;
  for (int other = 1; other < 8; ++other) m = merge(m, {rows / 8, means[other][lane], squares[other][lane]});
  mean[channel] = m.mean, variance[channel] = m.squares / m.count;
}

__device__ Moments of_lane(const Moments& m, int distance) {
  return {m.count, __shfl_xor_sync(0xffffffff, m.mean, distance),
          __shfl_xor_sync(0xffffffff, m.squares, distance)};
}

// One read by 64 blocks instead of two. A warp has 4 rows of 8 channels at a time. The last block of each 8 channels merges.
const int kBlocks = 8, kBlockRows = rows / kBlocks;
__global__ void one_launch(const float* x, float* mean, float* variance, volatile float* parts,
                           unsigned* tickets) {
  __shared__ float means[8][8], squares[8][8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, channel = blockIdx.x * 8 + lane % 8;
  Moments m = {0, 0, 0};
  for (int row = threadIdx.x / 8; row < kBlockRows; row += 32)
    add(m, x[(blockIdx.y * kBlockRows + row) * channels + channel]);
  for (int d = 8; d < 32; d *= 2) m = merge(m, of_lane(m, d));
  if (lane < 8) means[warp][lane] = m.mean, squares[warp][lane] = m.squares;
  __syncthreads();
  if (threadIdx.x >= 8) return;
  for (int other = 1; other < 8; ++other)
    m = merge(m, {kBlockRows / 8, means[other][lane], squares[other][lane]});
  parts[2 * blockIdx.y * channels + channel] = m.mean;
  parts[(2 * blockIdx.y + 1) * channels + channel] = m.squares;
  __threadfence();
  if (atomicAdd(&tickets[channel], 1u) != kBlocks - 1) return;
  __threadfence();
  m = {0, 0, 0};
  for (int block = 0; block < kBlocks; ++block)
    m = merge(
        m, {kBlockRows, parts[2 * block * channels + channel], parts[(2 * block + 1) * channels + channel]});
  tickets[channel] = 0;  // for the next launch
  mean[channel] = m.mean, variance[channel] = m.squares / m.count;
}

int main() {
  std::vector<float> x(rows * channels), mean(channels), variance(channels);
  for (int i = 0; i < rows * channels; ++i) x[i] = 1000 + float(i * 7 % 11);
  float *d_x, *d_mean, *d_variance, *parts;
  unsigned* tickets;
  cudaMalloc(&d_x, x.size() * sizeof(float));
  cudaMalloc(&d_mean, channels * sizeof(float));
  cudaMalloc(&d_variance, channels * sizeof(float));
  cudaMalloc(&parts, 2 * kBlocks * channels * sizeof(float));
  cudaMalloc(&tickets, channels * sizeof(unsigned));
  cudaMemset(tickets, 0, channels * sizeof(unsigned));
  cudaMemcpy(d_x, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
  const auto show = [&](const char* name) {
    cudaMemcpy(mean.data(), d_mean, channels * sizeof(float), cudaMemcpyDeviceToHost);
    cudaMemcpy(variance.data(), d_variance, channels * sizeof(float), cudaMemcpyDeviceToHost);
    cudaMemset(d_mean, 0, channels * sizeof(float));
    cudaMemset(d_variance, 0, channels * sizeof(float));
    int wrong = 0;
    for (int c = 0; c < channels; ++c) {
      double sum = 0, squares = 0;
      for (int row = 0; row < rows; ++row) sum += x[row * channels + c];
      for (int row = 0; row < rows; ++row) squares += std::pow(x[row * channels + c] - sum / rows, 2);
      wrong +=
          std::fabs(mean[c] * rows / sum - 1) > 1e-6 || std::fabs(variance[c] * rows / squares - 1) > 1e-4;
    }
    printf("%s: %d channels wrong\n", name, wrong);
  };
  strided<<<channels, 256>>>(d_x, d_mean, d_variance);
  show("strided");
  neighbors<<<channels / 32, dim3(32, 8)>>>(d_x, d_mean, d_variance);
  show("neighbors");
  of_squares<<<channels / 32, dim3(32, 8)>>>(d_x, d_mean, d_variance);
  show("of_squares");
  one_read<<<channels / 32, dim3(32, 8)>>>(d_x, d_mean, d_variance);
  show("one_read");
  one_launch<<<dim3(channels / 8, kBlocks), 256>>>(d_x, d_mean, d_variance, parts, tickets);
  show("one_launch");
}

#include <cstdio>
#include <vector>

// Rung 0: in round d, the threads whose index is a multiple of 2 d add.
__global__ void modulo(const float* x, float* y) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = x[blockIdx.x * 256 + t];
  __syncthreads();
  for (int d = 1; d < 256; d *= 2) {
    if (t % (2 * d) == 0) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

// Rung 1: the first threads add, elements 2 d apart.
__global__ void strided(const float* x, float* y) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = x[blockIdx.x * 256 + t];
  __syncthreads();
  for (int d = 1; d < 256; d *= 2) {
    int i = 2 * d * t;
    if (i < 256) s[i] += s[i + d];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

// Rung 2: the first threads add, neighboring elements.
__global__ void sequential(const float* x, float* y) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = x[blockIdx.x * 256 + t];
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

// Rung 3: each thread adds 32 elements before it shares its sum.
__global__ void many(const float* x, float* y) {
  __shared__ float s[256];
  int t = threadIdx.x;
  float v = 0;
  for (int k = 0; k < 32; ++k) v += x[blockIdx.x * 8192 + k * 256 + t];
  s[t] = v;
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

// Rung 4: the lanes of a warp exchange registers; shared memory carries one value per warp.
__global__ void shuffles(const float* x, float* y) {
  __shared__ float s[8];
  int t = threadIdx.x;
  float v = 0;
  for (int k = 0; k < 32; ++k) v += x[blockIdx.x * 8192 + k * 256 + t];
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffff, v, d);
  if (t % 32 == 0) s[t / 32] = v;
  __syncthreads();
  if (t == 0) {
    for (int warp = 1; warp < 8; ++warp) v += s[warp];
    y[blockIdx.x] = v;
  }
}

// Rung 5: the block that stores its sum last adds the sums of all blocks. *ticket is 0 before the launch.
__global__ void one_launch(const float* x, volatile float* y, float* total, unsigned* ticket) {
  __shared__ float s[8];
  int t = threadIdx.x;
  float v = 0;
  for (int k = 0; k < 32; ++k) v += x[blockIdx.x * 8192 + k * 256 + t];
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffff, v, d);
  if (t % 32 == 0) s[t / 32] = v;
  __syncthreads();
  if (t != 0) return;
  for (int warp = 1; warp < 8; ++warp) v += s[warp];
  y[blockIdx.x] = v;
  __threadfence();  // my sum is visible before my ticket is
  if (atomicAdd(ticket, 1u) != gridDim.x - 1) return;
  __threadfence();  // what I read now is not older than my ticket
  float sum = 0;
  for (int block = 0; block < gridDim.x; ++block) sum += y[block];
  *total = sum;
  *ticket = 0;  // for the next launch
}

const int n = 65536;

void show(const char* name, const float* d_y, int count) {
  std::vector<float> y(count);
  cudaMemcpy(y.data(), d_y, count * sizeof(float), cudaMemcpyDeviceToHost);
  float sum = 0;
  for (float v : y) sum += v;
  printf("%s: %d results, sum %.0f\n", name, count, sum);
}

int main() {
  std::vector<float> x(n);
  for (int i = 0; i < n; ++i) x[i] = i % 7;
  float *d_x, *d_y, *d_total;
  unsigned* d_ticket;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMalloc(&d_y, n / 256 * sizeof(float));
  cudaMalloc(&d_total, sizeof(float));
  cudaMalloc(&d_ticket, sizeof(unsigned));
  cudaMemcpy(d_x, x.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemset(d_ticket, 0, sizeof(unsigned));
  modulo<<<n / 256, 256>>>(d_x, d_y);
  show("modulo", d_y, n / 256);
  strided<<<n / 256, 256>>>(d_x, d_y);
  show("strided", d_y, n / 256);
  sequential<<<n / 256, 256>>>(d_x, d_y);
  show("sequential", d_y, n / 256);
  many<<<n / 8192, 256>>>(d_x, d_y);
  show("many", d_y, n / 8192);
  shuffles<<<n / 8192, 256>>>(d_x, d_y);
  show("shuffles", d_y, n / 8192);
  one_launch<<<n / 8192, 256>>>(d_x, d_y, d_total, d_ticket);
  show("one_launch", d_total, 1);
}

#include <cstdio>
#include <vector>

__global__ void naive(const float* x, float* y, int n) {
  int column = blockIdx.x * 32 + threadIdx.x;
  int row = blockIdx.y * 32 + threadIdx.y;
  y[column * n + row] = x[row * n + column];
}

__global__ void tile(const float* x, float* y, int n) {
  __shared__ float s[32][32];
  int column = blockIdx.x * 32 + threadIdx.x;
  int row = blockIdx.y * 32 + threadIdx.y;
  s[threadIdx.y][threadIdx.x] = x[row * n + column];
  __syncthreads();
  column = blockIdx.y * 32 + threadIdx.x;
  row = blockIdx.x * 32 + threadIdx.y;
  y[row * n + column] = s[threadIdx.x][threadIdx.y];
}

__global__ void padded(const float* x, float* y, int n) {
  __shared__ float s[32][33];
  int column = blockIdx.x * 32 + threadIdx.x;
  int row = blockIdx.y * 32 + threadIdx.y;
  s[threadIdx.y][threadIdx.x] = x[row * n + column];
  __syncthreads();
  column = blockIdx.y * 32 + threadIdx.x;
  row = blockIdx.x * 32 + threadIdx.y;
  y[row * n + column] = s[threadIdx.x][threadIdx.y];
}

__global__ void swizzled(const float* x, float* y, int n) {
  __shared__ float s[32][32];
  int column = blockIdx.x * 32 + threadIdx.x;
  int row = blockIdx.y * 32 + threadIdx.y;
  s[threadIdx.y][threadIdx.x ^ threadIdx.y] = x[row * n + column];
  __syncthreads();
  column = blockIdx.y * 32 + threadIdx.x;
  row = blockIdx.x * 32 + threadIdx.y;
  y[row * n + column] = s[threadIdx.x][threadIdx.y ^ threadIdx.x];
}

const int n = 256, bytes = n * n * sizeof(float);

// Prints how many elements of the copy of y are not those of the transposed x, and clears y.
void show(const char* name, const std::vector<float>& x, float* d_y) {
  std::vector<float> y(n * n);
  cudaMemcpy(y.data(), d_y, bytes, cudaMemcpyDeviceToHost);
  cudaMemset(d_y, 0, bytes);
  int wrong = 0;
  for (int row = 0; row < n; ++row)
    for (int column = 0; column < n; ++column) wrong += y[column * n + row] != x[row * n + column];
  printf("%s: %d wrong\n", name, wrong);
}

int main() {
  std::vector<float> x(n * n);
  for (int i = 0; i < n * n; ++i) x[i] = i;
  float *d_x, *d_y;
  cudaMalloc(&d_x, bytes);
  cudaMalloc(&d_y, bytes);
  cudaMemcpy(d_x, x.data(), bytes, cudaMemcpyHostToDevice);
  const dim3 blocks(n / 32, n / 32), threads(32, 32);
  naive<<<blocks, threads>>>(d_x, d_y, n);
  show("naive", x, d_y);
  tile<<<blocks, threads>>>(d_x, d_y, n);
  show("tile", x, d_y);
  padded<<<blocks, threads>>>(d_x, d_y, n);
  show("padded", x, d_y);
  swizzled<<<blocks, threads>>>(d_x, d_y, n);
  show("swizzled", x, d_y);
}

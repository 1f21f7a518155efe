#include <cstdio>
#include <vector>

const int m = 128, n = 128, k = 64;

__global__ void rows(const float* a, const float* b, float* c) {
  int row = blockIdx.x * 16 + threadIdx.x;
  int column = blockIdx.y * 16 + threadIdx.y;
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = sum;
}

__global__ void columns(const float* a, const float* b, float* c) {
  int row = blockIdx.y * 16 + threadIdx.y;
  int column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = sum;
}

__global__ void tile(const float* a, const float* b, float* c) {
  __shared__ float tile_a[16][16], tile_b[16][16];
  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
  float sum = 0;
  for (int begin = 0; begin < k; begin += 16) {
    tile_a[ty][tx] = a[row * k + begin + tx];
    tile_b[ty][tx] = b[(begin + ty) * n + column];
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += tile_a[ty][i] * tile_b[i][tx];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

__global__ void registers(const float* a, const float* b, float* c) {
  __shared__ float slab_a[16][66], slab_b[16][66];
  const int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 16 + tx;
  const int first_row = blockIdx.y * 64, first_column = blockIdx.x * 64;
  float sum[4][4] = {};
  for (int begin = 0; begin < k; begin += 16) {
    for (int e = thread; e < 16 * 64; e += 256) {
      const int row = first_row + e / 16, column = first_column + e % 64;
      const int of_a = begin + e % 16, of_b = begin + e / 64;
      slab_a[e % 16][e / 16] = a[row * k + of_a];
      slab_b[e / 64][e % 64] = b[of_b * n + column];
    }
    __syncthreads();
    for (int i = 0; i < 16; ++i) {
      float left[4], right[4];
      for (int r = 0; r < 4; ++r) left[r] = slab_a[i][r * 16 + ty];
      for (int s = 0; s < 4; ++s) right[s] = slab_b[i][s * 16 + tx];
      for (int r = 0; r < 4; ++r)
        for (int s = 0; s < 4; ++s) sum[r][s] += left[r] * right[s];
    }
    __syncthreads();
  }
  for (int r = 0; r < 4; ++r)
    for (int s = 0; s < 4; ++s) {
      const int row = first_row + r * 16 + ty, column = first_column + s * 16 + tx;
      c[row * n + column] = sum[r][s];
    }
}

__global__ void vectors(const float* a, const float* b, float* c) {
  __shared__ __align__(16) float slab_a[16][68], slab_b[16][68];
  const int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 16 + tx;
  const int first_row = blockIdx.y * 64, first_column = blockIdx.x * 64;
  float sum[4][4] = {};
  for (int begin = 0; begin < k; begin += 16) {
    for (int e = thread; e < 16 * 64; e += 256) {
      const int row = first_row + e / 16, column = first_column + e % 64;
      const int of_a = begin + e % 16, of_b = begin + e / 64;
      slab_a[e % 16][e / 16] = a[row * k + of_a];
      slab_b[e / 64][e % 64] = b[of_b * n + column];
    }
    __syncthreads();
    for (int i = 0; i < 16; ++i) {
      const float4 left = *reinterpret_cast<const float4*>(&slab_a[i][4 * ty]);
      const float4 right = *reinterpret_cast<const float4*>(&slab_b[i][4 * tx]);
      const float rows[4] = {left.x, left.y, left.z, left.w};
      const float columns[4] = {right.x, right.y, right.z, right.w};
      for (int r = 0; r < 4; ++r)
        for (int s = 0; s < 4; ++s) sum[r][s] += rows[r] * columns[s];
    }
    __syncthreads();
  }
  for (int r = 0; r < 4; ++r)
    for (int s = 0; s < 4; ++s) {
      const int row = first_row + 4 * ty + r, column = first_column + 4 * tx + s;
      c[row * n + column] = sum[r][s];
    }
}

int main() {
  std::vector<float> a(m * k), b(k * n), c(m * n);
  for (int i = 0; i < m * k; ++i) a[i] = i % 7;
  for (int i = 0; i < k * n; ++i) b[i] = i % 5;
  float *d_a, *d_b, *d_c;
  cudaMalloc(&d_a, a.size() * sizeof(float));
  cudaMalloc(&d_b, b.size() * sizeof(float));
  cudaMalloc(&d_c, c.size() * sizeof(float));
  cudaMemcpy(d_a, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(d_b, b.data(), b.size() * sizeof(float), cudaMemcpyHostToDevice);
  const auto show = [&](const char* name) {
    cudaMemcpy(c.data(), d_c, c.size() * sizeof(float), cudaMemcpyDeviceToHost);
    cudaMemset(d_c, 0, c.size() * sizeof(float));
    int wrong = 0;
    for (int row = 0; row < m; ++row)
      for (int column = 0; column < n; ++column) {
        float sum = 0;
        for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
        wrong += c[row * n + column] != sum;
      }
    printf("%s: %d wrong\n", name, wrong);
  };
  const dim3 small(n / 16, m / 16), large(n / 64, m / 64), threads(16, 16);
  rows<<<small, threads>>>(d_a, d_b, d_c);
  show("rows");
  columns<<<small, threads>>>(d_a, d_b, d_c);
  show("columns");
  tile<<<small, threads>>>(d_a, d_b, d_c);
  show("tile");
  registers<<<large, threads>>>(d_a, d_b, d_c);
  show("registers");
  vectors<<<large, threads>>>(d_a, d_b, d_c);
  show("vectors");
}

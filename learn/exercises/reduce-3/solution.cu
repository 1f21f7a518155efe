// The sum of y is that of x, which has n elements. Block b adds those from x[8192 b] to x[8192 b + 8191] to y[b].
__global__ void block_sum(const float* x, float* y, int n) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  float sum = 0;
  for (int k = 0; k < 32; ++k) {
    const int i = 8192 * blockIdx.x + 256 * k + t;
    if (i < n) sum += x[i];
  }
  s[t] = sum;
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

// Threads without an element leave their word of shared memory as it was.
__global__ void block_sum(const float* x, float* y, int n) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  const int i = 256 * blockIdx.x + t;
  if (i < n) s[t] = x[i];
  __syncthreads();
  for (int d = 1; d < 256; d *= 2) {
    if (t % (2 * d) == 0) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

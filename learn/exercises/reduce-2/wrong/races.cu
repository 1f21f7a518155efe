// All threads add, also those whose value another one reads in the same round.
__global__ void block_sum(const float* x, float* y, int n) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  const int i = 256 * blockIdx.x + t;
  s[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    s[t] += s[(t + d) % 256];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

// No barrier in the loop: a thread may read what its neighbor has not added yet.
__global__ void block_sum(const float* x, float* y, int n) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  const int i = 256 * blockIdx.x + t;
  s[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int d = 1; d < 256; d *= 2) {
    if (t % (2 * d) == 0) s[t] += s[t + d];
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

// Neighboring threads, but their words are 2 d apart: in the same banks.
__global__ void block_sum(const float* x, float* y, int n) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  const int i = 256 * blockIdx.x + t;
  s[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int d = 1; d < 256; d *= 2) {
    if (2 * d * t < 256) s[2 * d * t] += s[2 * d * t + d];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

// The sum of y is that of x, which has n elements. Block b adds those from x[8192 b] to x[8192 b + 8191] to y[b].
//
// Blocks have 256 threads, so each thread has 32 elements. Shared memory and barriers are needed only once a block: let
// each thread add its elements in a register first. Which 32 elements a thread has is free: choose them so that the 32
// lanes of each load are neighbors. The last block may have fewer elements.
__global__ void block_sum(const float* x, float* y, int n) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  const int i = 8192 * blockIdx.x + t;
  s[t] = i < n ? x[i] : 0;  // TODO: 32 elements
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}

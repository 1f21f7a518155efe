// y[b] = the sum of the elements that block b has: x[256 b] to x[256 b + 255], as far as they are in x, which has n.
//
// Blocks have 256 threads. Each thread writes its element to s, or 0 if it has none. Then, in rounds: threads whose index
// is a multiple of 2 add the value of their neighbor; those that are a multiple of 4 add the one 2 further; and so on,
// until s[0] is the sum. All threads of the block must have finished a round before the next one begins.
__global__ void block_sum(const float* x, float* y, int n) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  const int i = 256 * blockIdx.x + t;
  // TODO: fill s; add in rounds; thread 0 writes y[blockIdx.x].
}

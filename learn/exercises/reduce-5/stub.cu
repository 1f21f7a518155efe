// *result = the sum of the n elements of x, for a grid of any size.
//
// No barrier waits for all blocks. Instead, each block stores its sum in sums[blockIdx.x] and then takes a ticket:
// atomicAdd(ticket, 1) returns how many blocks have finished before. The block that gets gridDim.x - 1 is the last one;
// all the other sums are there, and it adds them. __threadfence() makes a store visible to other blocks before what
// follows it. *ticket is 0 at the first launch, and must be 0 again at the end of each.

// Returns the sum of `value` over the 256 threads of the block, in thread 0.
__device__ float block_sum(float value) {
  __shared__ float s[256];
  const int t = threadIdx.x;
  s[t] = value;
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  value = s[0];
  __syncthreads();
  return value;
}

__global__ void total(const float* x, float* sums, unsigned* ticket, float* result, int n) {
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  sum = block_sum(sum);
  // TODO: thread 0 stores the sum and takes a ticket. The threads of the last block add the sums of all blocks.
}

// Adds the elements that are larger than all before them, and no others.
// For each row of x, its maximum and the sum of 2^(x - maximum): the two numbers that a softmax to the base 2 needs. One warp per
// row, in blocks of 32 threads.
__global__ void row_statistics(const float* x, float* maximum, float* sum, int columns) {
  const int lane = threadIdx.x;
  x += blockIdx.x * columns;
  float largest = -1e30f, total = 0;
  for (int i = lane; i < columns; i += 32) {
    const float value = x[i];
    if (value <= largest) continue;
    total = total * exp2f(largest - value) + 1;
    largest = value;
  }
  for (int d = 16; d > 0; d /= 2) {
    const float other_largest = __shfl_xor_sync(0xffffffff, largest, d);
    const float other_total = __shfl_xor_sync(0xffffffff, total, d);
    const float larger = fmaxf(largest, other_largest);
    total = total * exp2f(largest - larger) + other_total * exp2f(other_largest - larger);
    largest = larger;
  }
  if (lane == 0) maximum[blockIdx.x] = largest, sum[blockIdx.x] = total;
}

// For each row of x, its maximum and the sum of 2^(x - maximum): the two numbers that a softmax to the base 2 needs. One warp per
// row, in blocks of 32 threads.
//
// The values are right, and x is loaded twice. Load it once: when a larger maximum comes, what was added so far must be
// multiplied by 2^(old maximum - new maximum). The lanes have different maxima, so the same holds when their sums are added.
__global__ void row_statistics(const float* x, float* maximum, float* sum, int columns) {
  const int lane = threadIdx.x;
  x += blockIdx.x * columns;
  float largest = -1e30f, total = 0;  // the maximum of no numbers; -INFINITY - -INFINITY would be NaN
  for (int i = lane; i < columns; i += 32) largest = fmaxf(largest, x[i]);
  for (int d = 16; d > 0; d /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, d));
  // TODO: without this second loop over x
  for (int i = lane; i < columns; i += 32) total += exp2f(x[i] - largest);
  for (int d = 16; d > 0; d /= 2) total += __shfl_xor_sync(0xffffffff, total, d);
  if (lane == 0) maximum[blockIdx.x] = largest, sum[blockIdx.x] = total;
}

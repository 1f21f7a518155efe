// Takes the number of the block for that of the thread.
__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {
  const int i = blockIdx.x;
  if (i < n) z[i] = a * x[i] + y[i];
}

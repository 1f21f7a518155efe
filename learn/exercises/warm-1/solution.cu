// z[i] = a x[i] + y[i] for i = 0 to n - 1: one thread per element.
__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = a * x[i] + y[i];
}

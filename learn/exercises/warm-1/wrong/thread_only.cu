// Each block computes the same 256 elements.
__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {
  const int i = threadIdx.x;
  if (i < n) z[i] = a * x[i] + y[i];
}

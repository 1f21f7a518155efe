// y[i] += a x[i] for i = 0 to n - 1, by a grid that may have fewer threads than there are elements.
__global__ void add_scaled(int n, float a, const float* x, float* y) {
  const int threads = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) y[i] += a * x[i];
}

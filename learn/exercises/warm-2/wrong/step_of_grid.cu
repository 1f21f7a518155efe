// The step is the number of blocks: threads of one block compute the same elements.
__global__ void add_scaled(int n, float a, const float* x, float* y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x) y[i] += a * x[i];
}

// The last block has threads without an element.
__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  z[i] = a * x[i] + y[i];
}

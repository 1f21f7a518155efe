#include <cstdio>
#include <cstdlib>

// Each thread loads one element; neighboring lanes load elements `stride` apart.
__global__ void load(const float* x, float* y, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i * stride];
}

int main(int argc, char** argv) {
  const int threads = 1024, stride = argc > 1 ? atoi(argv[1]) : 1;
  float *x, *y;
  cudaMalloc(&x, threads * stride * sizeof(float));
  cudaMalloc(&y, threads * sizeof(float));
  cudaMemset(x, 0, threads * stride * sizeof(float));
  load<<<threads / 256, 256>>>(x, y, stride);
  cudaDeviceSynchronize();
  printf("%d threads, stride %d\n", threads, stride);
}

// A copy and a kernel on two streams: streams none | event.
#include <cstdio>
#include <cstring>

__global__ void twice(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = 2 * x[i];
}

int main(int count, char** arguments) {
  const bool has_wait = count > 1 && std::strcmp(arguments[1], "event") == 0;
  const int n = 1000;
  const size_t bytes = n * sizeof(float);
  float *host, *x;
  cudaMallocHost(&host, bytes);
  cudaMalloc(&x, bytes);
  cudaMemset(x, 0, bytes);
  for (int i = 0; i < n; ++i) host[i] = 1;
  cudaStream_t copies, kernels;
  cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&kernels, cudaStreamNonBlocking);
  cudaEvent_t is_there;
  cudaEventCreateWithFlags(&is_there, cudaEventDisableTiming);
  cudaDeviceSynchronize();

  cudaMemcpyAsync(x, host, bytes, cudaMemcpyHostToDevice, copies);
  if (has_wait) {
    cudaEventRecord(is_there, copies);
    cudaStreamWaitEvent(kernels, is_there, 0);
  }
  twice<<<(n + 255) / 256, 256, 0, kernels>>>(x, n);
  cudaMemcpyAsync(host, x, bytes, cudaMemcpyDeviceToHost, kernels);
  cudaStreamSynchronize(kernels);
  printf("%g\n", host[0]);

  cudaDeviceSynchronize();
  cudaEventDestroy(is_there);
  cudaStreamDestroy(copies);
  cudaStreamDestroy(kernels);
  cudaFree(x);
  cudaFreeHost(host);
}

#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int chunks = at.size(0), chunk = at.size(1), n = chunks * chunk;
  float *x, *buffers[2];
  cudaMalloc(&x, n * sizeof(float));
  for (float*& buffer : buffers) cudaMallocHost(&buffer, chunk * sizeof(float));
  const std::vector<float> data = at.values(n);
  at.clear(x, n);
  cudaStream_t copies, kernels;
  cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&kernels, cudaStreamNonBlocking);
  cudaDeviceSynchronize();
  upload(data.data(), x, buffers, chunks, chunk, copies, kernels);
  at.compare("x", x, n, [&](int i) { return 2 * data[i]; });
  cudaStreamDestroy(copies);
  cudaStreamDestroy(kernels);
  for (float* buffer : buffers) cudaFreeHost(buffer);
}

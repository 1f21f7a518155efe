#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int n = at.size(0);
  float *host_x, *host_y, *host_z, *x, *y, *z;
  cudaMallocHost(&host_x, n * sizeof(float));
  cudaMallocHost(&host_y, n * sizeof(float));
  cudaMallocHost(&host_z, n * sizeof(float));
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&y, n * sizeof(float));
  cudaMalloc(&z, n * sizeof(float));
  const std::vector<float> left = at.values(n), right = at.values(n);
  at.clear(x, n);
  at.clear(y, n);
  at.clear(z, n);
  for (int i = 0; i < n; ++i) host_x[i] = left[i], host_y[i] = right[i], host_z[i] = NAN;
  cudaStream_t first, second;
  cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
  cudaDeviceSynchronize();
  add_on_two_streams(host_x, host_y, host_z, x, y, z, n, first, second);
  for (int i = 0; i < n; ++i)
    if (host_z[i] != left[i] + right[i])
      at.fail("host_z[%d] is %g, expected %g", i, static_cast<double>(host_z[i]),
              static_cast<double>(left[i] + right[i]));
  at.finish_kernel();
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
  for (float* array : {host_x, host_y, host_z}) cudaFreeHost(array);
}

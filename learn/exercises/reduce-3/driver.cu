#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int n = at.size(0), blocks = (n + 8191) / 8192;
  float *x, *y;
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&y, blocks * sizeof(float));
  const std::vector<float> host = at.fill(x, n);
  at.clear(y, blocks);
  block_sum<<<blocks, 256>>>(x, y, n);
  at.finish_kernel();
  std::vector<float> sums(blocks);
  cudaMemcpy(sums.data(), y, blocks * sizeof(float), cudaMemcpyDeviceToHost);
  float expected = 0, actual = 0;
  for (const float value : host) expected += value;
  for (const float value : sums) actual += value;
  if (std::isnan(actual)) at.fail("an element of y was not written");
  if (actual != expected) at.fail("the sum of y is %g, expected %g", actual, expected);
}

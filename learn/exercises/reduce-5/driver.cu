#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int n = at.size(0), blocks = at.size(1);
  float *x, *sums, *result;
  unsigned* ticket;
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&sums, blocks * sizeof(float));
  cudaMalloc(&ticket, sizeof(unsigned));
  cudaMalloc(&result, sizeof(float));
  cudaMemset(ticket, 0, sizeof(unsigned));
  at.free_later(sums);
  at.free_later(ticket);
  at.free_later(result);
  const std::vector<float> host = at.fill(x, n);
  float expected = 0;
  for (const float value : host) expected += value;
  for (const char* launch : {"first", "second"}) {
    cudaMemset(result, 0xff, sizeof(float));  // NaN
    total<<<blocks, 256>>>(x, sums, ticket, result, n);
    at.finish_kernel();
    float actual;
    cudaMemcpy(&actual, result, sizeof(float), cudaMemcpyDeviceToHost);
    if (std::isnan(actual)) at.fail("in the %s launch, the result was not written", launch);
    if (actual != expected)
      at.fail("in the %s launch, the result is %g, expected %g", launch, actual, expected);
  }
}

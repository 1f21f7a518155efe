#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int n = at.size(0);
  float *x, *y;
  cudaMalloc(&x, n * n * sizeof(float));
  cudaMalloc(&y, n * n * sizeof(float));
  const std::vector<float> host = at.fill(x, n * n);
  at.clear(y, n * n);
  transpose<<<dim3(n / 32, n / 32), dim3(32, 8)>>>(x, y, n);
  at.compare("y", y, n * n, [&](int i) { return host[i % n * n + i / n]; });
}

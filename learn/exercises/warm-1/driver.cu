#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int n = at.size(0);
  const float a = 3;
  float *x, *y, *z;
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&y, n * sizeof(float));
  cudaMalloc(&z, n * sizeof(float));
  const std::vector<float> host_x = at.fill(x, n), host_y = at.fill(y, n);
  at.clear(z, n);
  saxpy<<<(n + 255) / 256, 256>>>(n, a, x, y, z);
  at.compare("z", z, n, [&](int i) { return a * host_x[i] + host_y[i]; });
}

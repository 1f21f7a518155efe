#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int rows = at.size(0), columns = at.size(1), n = rows * columns;
  float *x, *bias, *y;
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&bias, columns * sizeof(float));
  cudaMalloc(&y, n * sizeof(float));
  const std::vector<float> host_x = at.fill(x, n), host_bias = at.fill(bias, columns);
  at.clear(y, n);
  const int blocks = ((rows > columns ? rows : columns) + 15) / 16;
  add_bias<<<dim3(blocks, blocks), dim3(16, 16)>>>(x, bias, y, rows, columns);
  at.compare("y", y, n, [&](int i) { return host_x[i] + host_bias[i % columns]; });
}

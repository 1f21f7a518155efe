#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int rows = at.size(0), columns = at.size(1), blocks = at.size(2);
  float *x, *y;
  cudaMalloc(&x, rows * columns * sizeof(float));
  cudaMalloc(&y, rows * sizeof(float));
  const std::vector<float> host = at.fill(x, rows * columns);
  at.clear(y, rows);
  row_sums<<<blocks, 256>>>(x, y, rows, columns);
  at.compare("y", y, rows, [&](int row) {
    float sum = 0;
    for (int column = 0; column < columns; ++column) sum += host[row * columns + column];
    return sum;
  });
}

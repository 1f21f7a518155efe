#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int n = at.size(0), blocks = (n + 255) / 256;
  float *x, *y;
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&y, blocks * sizeof(float));
  const std::vector<float> host = at.fill(x, n);
  at.clear(y, blocks);
  block_sum<<<blocks, 256>>>(x, y, n);
  at.compare("y", y, blocks, [&](int block) {
    float sum = 0;
    for (int i = 256 * block; i < n && i < 256 * (block + 1); ++i) sum += host[i];
    return sum;
  });
}

#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int n = at.size(0), blocks = at.size(1);
  const float a = 3;
  float *x, *y;
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&y, n * sizeof(float));
  const std::vector<float> host_x = at.fill(x, n), host_y = at.fill(y, n);
  add_scaled<<<blocks, 256>>>(n, a, x, y);
  at.compare(
      "y", y, n, [&](int i) { return a * host_x[i] + host_y[i]; },
      [&](int i, float actual, char* text, std::size_t size) {
        const int times = static_cast<int>((actual - host_y[i]) / (a * host_x[i]));
        if (actual == host_y[i] + times * a * host_x[i])
          std::snprintf(text, size, "a x[%d] was added %d times", i, times);
      });
}

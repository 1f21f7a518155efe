#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int m = at.size(0), n = at.size(1), k = at.size(2);
  __nv_bfloat16 *a, *b;
  float* c;
  cudaMalloc(&a, m * k * sizeof(__nv_bfloat16));
  cudaMalloc(&b, k * n * sizeof(__nv_bfloat16));
  cudaMalloc(&c, m * n * sizeof(float));
  const std::vector<float> host_a = at.fill(a, m * k), host_b = at.fill(b, k * n);
  at.clear(c, m * n);
  gemm<<<dim3(n / 8, m / 16), 32>>>(a, b, c, m, n, k);
  at.compare("c", c, m * n, [&](int element) {
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += host_a[element / n * k + i] * host_b[i * n + element % n];
    return sum;
  });
}

#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int n = at.size(0);
  std::vector<int> owner(3 * n, -1);  // 3 i + field of the one that is stored there
  for (int i = 0; i < n; ++i) {
    for (int field = 0; field < 3; ++field) {
      const int to = place(i, field, n);
      if (to < 0 || to >= 3 * n)
        at.fail("place(%d, %d, %d) is outside of the array of %d floats: it is %d", i, field, n, 3 * n, to);
      if (owner[to] >= 0)
        at.fail("place(%d, %d, %d) and place(%d, %d, %d) are both %d", i, field, n, owner[to] / 3,
                owner[to] % 3, n, to);
      owner[to] = 3 * i + field;
    }
  }
  float *points, *y;
  cudaMalloc(&points, 3 * n * sizeof(float));
  cudaMalloc(&y, n * sizeof(float));
  const std::vector<float> host = at.fill(points, 3 * n);
  at.clear(y, n);
  add_fields<<<(n + 255) / 256, 256>>>(points, y, n);
  at.compare("sums", y, n,
             [&](int i) { return host[place(i, 0, n)] + host[place(i, 1, n)] + host[place(i, 2, n)]; });
}

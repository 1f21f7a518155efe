#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int n = at.size(0), floats = 3 * n;
  std::vector<int> owner(floats, -1);  // 3 i + field of the one that is stored there
  for (int i = 0; i < n; ++i) {
    for (int field = 0; field < 3; ++field) {
      const int to = place(i, field, n);
      if (to < 0 || to >= floats)
        at.fail("place(%d, %d, %d) is outside of the array of %d floats: it is %d", i, field, n, floats, to);
      if (owner[to] >= 0)
        at.fail("place(%d, %d, %d) and place(%d, %d, %d) are both %d", i, field, n, owner[to] / 3,
                owner[to] % 3, n, to);
      owner[to] = 3 * i + field;
    }
  }
  float *points, *y;
  cudaMalloc(&points, floats * sizeof(float));
  cudaMalloc(&y, n * sizeof(float));
  const std::vector<float> host = at.fill(points, floats);
  at.clear(y, n);
  add_fields<<<(n + 255) / 256, 256>>>(points, y, n);
  at.compare("sums", y, n,
             [&](int i) { return host[place(i, 0, n)] + host[place(i, 1, n)] + host[place(i, 2, n)]; });
}

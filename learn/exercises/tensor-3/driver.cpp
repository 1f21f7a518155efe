#include "program.h"

// Whether two floats are equal, or both NaN.
static bool is_same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void lesson::run(Case& at) {
  const int n = at.size(0);
  std::vector<float> x = at.values(n), y(n, NAN), expected(n), part(n);
  if (n > 4) x[2] = 0, x[3] = NAN, x[4] = INFINITY;
  for (int i = 0; i < n; ++i) expected[i] = x[i] < 0 ? 0 : x[i];
  relu(x, y);
  for (int i = 0; i < n; ++i) {
    if (is_same(y[i], expected[i])) continue;
    if (std::isnan(x[i]))
      at.fail("y[%d] is %g for x = NaN, expected NaN: a comparison with NaN is false", i,
              static_cast<double>(y[i]));
    at.fail("y[%d] is %g, expected %g", i, static_cast<double>(y[i]), static_cast<double>(expected[i]));
  }
  relu(x, x);
  for (int i = 0; i < n; ++i)
    if (!is_same(x[i], expected[i]))
      at.fail("in place, y[%d] is %g, expected %g", i, static_cast<double>(x[i]),
              static_cast<double>(expected[i]));
  const std::vector<float> dy = at.values(n), old = at.values(n);
  for (int i = 0; i < n; ++i) part[i] = y[i] <= 0 ? 0 : dy[i];
  for (const bool accumulate : {false, true}) {
    std::vector<float> dx = accumulate ? old : std::vector<float>(n, NAN);
    relu_backward(dy, y, dx, accumulate);
    for (int i = 0; i < n; ++i) {
      const float right = accumulate ? old[i] + part[i] : part[i];
      if (is_same(dx[i], right)) continue;
      const double found = static_cast<double>(dx[i]), wanted = static_cast<double>(right);
      if (!accumulate && y[i] == 0) at.fail("dx[%d] is %g where y is 0, expected %g", i, found, wanted);
      at.fail("%s, dx[%d] is %g, expected %g%s", accumulate ? "accumulating" : "overwriting", i, found,
              wanted,
              accumulate && dx[i] == part[i] ? ": what was in dx before is lost"
              : std::isnan(dx[i])            ? ": it was added to what happened to be in dx"
                                             : "");
    }
  }
  std::vector<float> in_place = dy;
  relu_backward(in_place, y, in_place, false);
  for (int i = 0; i < n; ++i)
    if (!is_same(in_place[i], part[i]))
      at.fail("in place, dx[%d] is %g, expected %g", i, static_cast<double>(in_place[i]),
              static_cast<double>(part[i]));
}

#include "program.h"

static long additions = 0;

float add(float a, float b) {
  ++additions;
  const double exact = static_cast<double>(a) + static_cast<double>(b);
  if (exact == 0) return 0;
  const double unit = std::ldexp(1, std::ilogb(exact) - 7);
  return static_cast<float>(std::nearbyint(exact / unit) * unit);
}

void lesson::run(Case& at) {
  const int n = at.size(0);
  additions = 0;
  const std::vector<float> x(n, 1);
  const double found = static_cast<double>(sum(x)), expected = n;
  // A tree of additions has 12 rounds for 4,096 numbers, and each may round by 2^-8.
  if (!(std::fabs(found - expected) <= expected * std::ceil(std::log2(expected)) / 256))
    at.fail("the sum is %g, expected %g", found, expected);
  at.count("additions", static_cast<double>(additions));
}

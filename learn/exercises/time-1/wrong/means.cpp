// A few measurements that are far off decide about a mean.
#include <algorithm>
#include <vector>

#include "session.h"

// Returns 1 if the first program is faster, 2 if the second one is, and 0 if they take the same time. If they differ, then by
// 5 %. At most 40 measurements.
int faster(Session& session) {
  double first = 0, second = 0;
  for (int i = 0; i < 20; ++i) {
    first += session.first();
    second += session.second();
  }
  const double ratio = second / first;
  return ratio > 1.025 ? 1 : ratio < 0.975 ? 2 : 0;
}

// Measures until it is sure.
#include <algorithm>
#include <vector>

#include "session.h"

// Returns 1 if the first program is faster, 2 if the second one is, and 0 if they take the same time. If they differ, then by
// 5 %. At most 40 measurements.
int faster(Session& session) {
  std::vector<double> ratios;
  for (int i = 0; i < 101; ++i) {
    const double first = session.first();
    ratios.push_back(session.second() / first);
  }
  std::sort(ratios.begin(), ratios.end());
  const double ratio = ratios[50];
  return ratio > 1.025 ? 1 : ratio < 0.975 ? 2 : 0;
}

// First all measurements of one program, then all of the other: the computer is busy during one of them.
#include <algorithm>
#include <vector>

#include "session.h"

// Returns 1 if the first program is faster, 2 if the second one is, and 0 if they take the same time. If they differ, then by
// 5 %. At most 40 measurements.
int faster(Session& session) {
  std::vector<double> first(20), second(20);
  for (double& time : first) time = session.first();
  for (double& time : second) time = session.second();
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  const double ratio = (second[9] + second[10]) / (first[9] + first[10]);
  return ratio > 1.025 ? 1 : ratio < 0.975 ? 2 : 0;
}

// Closes buckets of 4,000,000 bytes, and forgets the last one, which is not full.
#include <algorithm>
#include <vector>

std::vector<int> plan(const std::vector<double>& ready, const std::vector<double>& bytes, double alpha,
                      double beta) {
  double sum = 0;
  int count = 0;
  std::vector<int> result;
  for (double each : bytes) {
    sum += each, ++count;
    if (sum >= 4e6) result.push_back(count), sum = 0, count = 0;
  }
  return result;
}

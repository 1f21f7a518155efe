// Each gradient pays the latency.
#include <algorithm>
#include <vector>

std::vector<int> plan(const std::vector<double>& ready, const std::vector<double>& bytes, double alpha,
                      double beta) {
  return std::vector<int>(ready.size(), 1);
}

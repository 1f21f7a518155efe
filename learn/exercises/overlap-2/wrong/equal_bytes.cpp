// Three buckets with about as many bytes: the last one is too large.
#include <algorithm>
#include <vector>

std::vector<int> plan(const std::vector<double>& ready, const std::vector<double>& bytes, double alpha,
                      double beta) {
  double total = 0, sum = 0;
  for (double each : bytes) total += each;
  std::vector<int> result = {0};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    ++result.back();
    sum += bytes[i];
    if (sum >= total / 3 && result.size() < 3 && i + 1 < bytes.size()) sum = 0, result.push_back(0);
  }
  return result;
}

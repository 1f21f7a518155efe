// Treats mean and root as constants.
#include <cmath>
#include <vector>

std::vector<double> backward(const std::vector<double>& x, const std::vector<double>& dy, double weight,
                             double epsilon) {
  const double n = static_cast<double>(x.size());
  double mean = 0, variance = 0, sum = 0, product = 0;
  for (double each : x) mean += each / n;
  for (double each : x) variance += (each - mean) * (each - mean) / n;
  const double scale = 1 / std::sqrt(variance + epsilon);
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += dy[i] / n;
    product += dy[i] * (x[i] - mean) * scale / n;
  }
  std::vector<double> dx;
  for (std::size_t i = 0; i < x.size(); ++i) dx.push_back(weight * scale * (dy[i] + 0 * (sum + product)));
  return dx;
}

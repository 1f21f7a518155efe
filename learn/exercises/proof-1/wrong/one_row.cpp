// A single row.
#include <cmath>
#include <functional>
#include <vector>

// A function that returns the variance of each row of x, which has rows x n elements: the mean of the squared distances from
// the row's mean. A row with a NaN has the variance NaN. n is at least 2.
using Variances = std::function<std::vector<float>(const std::vector<float>& x, int rows, int n)>;

// Whether the function is right for these values. It may add in any order.
bool is_right(const Variances& variances, const std::vector<float>& x, int rows, int n) {
  const std::vector<float> results = variances(x, rows, n);
  for (int row = 0; row < rows; ++row) {
    double mean = 0, sum = 0;
    for (int i = 0; i < n; ++i) mean += static_cast<double>(x[row * n + i]) / n;
    for (int i = 0; i < n; ++i) sum += std::pow(x[row * n + i] - mean, 2);
    const double expected = sum / n;
    if (std::isnan(expected) && !std::isnan(results[row])) return false;
    if (std::fabs(results[row] - expected) > 1e-3 * expected) return false;
  }
  return true;
}

// Returns whether the function is right, as far as a few calls tell. It may round: results within 0.1 % are right.
bool accepts(const Variances& variances) {
  for (int n : {2, 33, 64, 100}) {
    std::vector<float> x(n);
    for (int i = 0; i < n; ++i) x[i] = i * 7 % 11 + i / n;
    if (!is_right(variances, x, 1, n)) return false;
    for (float& value : x) value += 2000;
    if (!is_right(variances, x, 1, n)) return false;
    x[n / 2] = NAN;
    if (!is_right(variances, x, 1, n)) return false;
  }
  return true;
}

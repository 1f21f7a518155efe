#include <cmath>
#include <vector>

// A batch norm of one channel: y = weight (x - m) / s + bias, where m is the mean of x, s is the root of v +
// epsilon, and v is the mean of (x - m)^2. dy is the gradient of y. Returns the gradient of x. Each y depends
// on each x: also through m and s. TODO
std::vector<double> backward(const std::vector<double>& x, const std::vector<double>& dy, double weight,
                             double epsilon) {
  return std::vector<double>(x.size(), 0);
}

// The same tolerance for large and for small derivatives.
#include <cmath>
#include <functional>

bool is_derivative(const std::function<double(double)>& f, const std::function<double(double)>& df,
                   double x) {
  const double h = 1e-5;
  const double slope = (f(x + h) - f(x - h)) / (2 * h);
  return std::fabs(slope - df(x)) <= 1e-3;
}

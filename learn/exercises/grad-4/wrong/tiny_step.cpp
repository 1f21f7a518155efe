// A step so small that nothing but rounding is left.
#include <cmath>
#include <functional>

bool is_derivative(const std::function<double(double)>& f, const std::function<double(double)>& df,
                   double x) {
  const double h = 1e-15;
  const double slope = (f(x + h) - f(x - h)) / (2 * h);
  return std::fabs(slope - df(x)) <= 1e-4 * std::fabs(df(x)) + 1e-14;
}

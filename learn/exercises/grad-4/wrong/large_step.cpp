// A step that is larger than what the function changes in.
#include <cmath>
#include <functional>

bool is_derivative(const std::function<double(double)>& f, const std::function<double(double)>& df,
                   double x) {
  const double h = 0.3;
  const double slope = (f(x + h) - f(x - h)) / (2 * h);
  return std::fabs(slope - df(x)) <= 5e-3 * std::fabs(df(x)) + 1e-14;
}

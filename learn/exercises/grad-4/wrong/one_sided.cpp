// A difference to one side, with a tolerance for two.
#include <cmath>
#include <functional>

bool is_derivative(const std::function<double(double)>& f, const std::function<double(double)>& df,
                   double x) {
  const double h = 1e-4;
  const double slope = (f(x + h) - f(x)) / h;
  return std::fabs(slope - df(x)) <= 1e-4 * std::fabs(df(x)) + 1e-14;
}

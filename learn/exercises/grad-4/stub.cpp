#include <cmath>
#include <functional>

// Returns whether df is the derivative of f at x, as far as finite differences tell. x is between -4 and 4. The derivatives
// that are wrong are wrong by at least 1 %; those that are right are right to 15 digits. f may be large or small, and it may
// change quickly: up to sin(20 x).
bool is_derivative(const std::function<double(double)>& f, const std::function<double(double)>& df,
                   double x) {
  // TODO
  return true;
}

#include "program.h"

namespace {

// The sum of y dy, whose derivatives are the gradients. Mean and root of `fixed` are used where it is not
// null.
double loss(const std::vector<double>& x, const std::vector<double>& dy, double weight, double epsilon,
            const std::vector<double>* of_mean, const std::vector<double>* of_root) {
  const double n = static_cast<double>(x.size());
  const auto mean_of = [&](const std::vector<double>& values) {
    double mean = 0;
    for (double each : values) mean += each / n;
    return mean;
  };
  const std::vector<double>& spread = of_root != nullptr ? *of_root : x;
  const double mean = mean_of(of_mean != nullptr ? *of_mean : x), center = mean_of(spread);
  double variance = 0, sum = 0;
  for (double each : spread) variance += (each - center) * (each - center) / n;
  for (std::size_t i = 0; i < x.size(); ++i)
    sum += dy[i] * weight * (x[i] - mean) / std::sqrt(variance + epsilon);
  return sum;
}

}  // namespace

void lesson::run(Case& at) {
  const int n = at.size(0);
  const std::vector<double> x = at.values<double>(n), dy = at.values<double>(n);
  const double weight = 1.5, epsilon = 0.25, h = 1e-4;
  const std::vector<double> dx = backward(x, dy, weight, epsilon);
  if (static_cast<int>(dx.size()) != n) at.fail("found %zu numbers, expected %d", dx.size(), n);
  for (int i = 0; i < n; ++i) {
    std::vector<double> above = x, below = x;
    above[i] += h, below[i] -= h;
    const auto slope = [&](const std::vector<double>* of_mean, const std::vector<double>* of_root) {
      return (loss(above, dy, weight, epsilon, of_mean, of_root) -
              loss(below, dy, weight, epsilon, of_mean, of_root)) /
             (2 * h);
    };
    const double expected = slope(nullptr, nullptr);
    const auto is = [&](double value) { return std::fabs(dx[i] - value) < 1e-5; };
    if (is(expected)) continue;
    at.fail("dx[%d] is %g, expected %g%s", i, dx[i], expected,
            is(slope(&x, &x))        ? ": as if mean and root did not depend on x"
            : is(slope(nullptr, &x)) ? ": as if the root did not depend on x"
            : is(slope(&x, nullptr)) ? ": as if the mean did not depend on x"
            : is(expected / weight)  ? ": without the weight"
                                     : "");
  }
}

#include "program.h"

void lesson::run(Case& at) {
  std::vector<double> results[2];
  double mean[2] = {}, squares[2] = {}, n[2] = {};
  for (int i = 0; i < 2; ++i) {
    n[i] = at.size(i);
    for (int k = 0; k < at.size(i); ++k) {
      results[i].push_back(70 + 3 * i + at.next() * 0x1p-21 * (1 + i));
      mean[i] += results[i].back() / n[i];
    }
    for (double each : results[i]) squares[i] += (each - mean[i]) * (each - mean[i]);
  }
  const double difference = mean[0] - mean[1], found = standard_errors(results[0], results[1]);
  const auto by = [&](double a, double b) { return difference / std::sqrt(squares[0] / a + squares[1] / b); };
  const auto is = [&](double value) { return std::fabs(found - value) < 1e-6 * std::fabs(value); };
  const double expected = by((n[0] - 1) * n[0], (n[1] - 1) * n[1]);
  if (is(expected)) return;
  at.fail("found %.5g, expected %.5g%s", found, expected,
          is(by(n[0] - 1, n[1] - 1)) ? ": the spread of one training; a mean of n has less"
          : is(by(n[0] * n[0], n[1] * n[1]))
              ? ": the variance is divided by n - 1, since the mean is of the same numbers"
          : is(-expected) ? ": the mean of b is subtracted from that of a"
          : std::fabs(found) > 0 && is(by((n[0] - 1) * n[0], 1e30)) ? ": b has noise, too"
                                                                    : "");
}

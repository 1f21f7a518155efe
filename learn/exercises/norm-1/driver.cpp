#include "program.h"

void lesson::run(Case& at) {
  const int n = at.size(0), parts = at.size(2);
  std::vector<float> x(n);
  double sum = 0, squares = 0;
  for (float& each : x) {
    double normal = -6;  // the sum of 12 uniform numbers
    for (int i = 0; i < 12; ++i) normal += at.next() * 0x1p-24;
    each = static_cast<float>(at.size(1) + normal);
    sum += each;
  }
  // The parts have different means, as different images have.
  for (int i = 0; i < n; ++i) x[i] += static_cast<float>(i * parts / n), sum += i * parts / n;
  for (float each : x) squares += (each - sum / n) * (each - sum / n);

  Moments all = merge(Moments(), Moments());  // of threads without numbers
  double within = 0, sum_of_means = 0;
  for (int part = 0; part < parts; ++part) {
    Moments own;
    const int begin = part * part * n / parts / parts, end = (part + 1) * (part + 1) * n / parts / parts;
    for (int i = begin; i < end; ++i) add(own, x[i]);
    within += own.squares;
    sum_of_means += own.mean;
    all = merge(all, own);
  }
  if (all.count != static_cast<float>(n))
    at.fail("the count is %g, expected %d", static_cast<double>(all.count), n);
  const double mean = all.mean;
  if (!(std::fabs(mean - sum / n) <= 1e-5 * std::fabs(sum / n) + 1e-3))
    at.fail("the mean is %g, expected %g%s", mean, sum / n,
            std::isnan(mean) ? ": there are parts without numbers"
            : parts > 1 && std::fabs(mean - sum_of_means / parts) < 1e-2
                ? ": the means of the parts count equally"
                : "");
  const double variance = all.squares / n, expected = squares / n;
  if (!(std::fabs(variance - expected) <= 1e-2 * expected + 1e-6))
    at.fail("the variance is %g, expected %g%s", variance, expected,
            parts > 1 && std::fabs(variance - within / n) < 1e-3 * expected
                ? ": the distances of the means of the parts are missing"
            : at.size(1) >= 1000 ? ": digits are lost, as large numbers are subtracted"
                                 : "");
}

#include "program.h"

void lesson::run(Case& at) {
  const int parts = at.size(0), n = 6;
  std::vector<int> counts(parts, 64);
  if (at.size(1) >= 2) counts.back() = 16;
  if (at.size(1) >= 3) counts.front() = 0;
  std::vector<std::vector<double>> means;
  std::vector<double> expected(n, 0), sum(n, 0), mean(n, 0);
  double images = 0;
  for (int count : counts) images += count;
  for (int part = 0; part < parts; ++part) {
    means.push_back(at.values<double>(n, 1, 9));
    for (int i = 0; i < n; ++i) {
      if (counts[part] == 0)
        means[part][i] = NAN;
      else
        expected[i] += counts[part] * means[part][i] / images, sum[i] += means[part][i];
      mean[i] = sum[i] / parts;
    }
  }
  const std::vector<double> actual = combine(means, counts);
  if (actual.size() != expected.size()) at.fail("found %zu numbers, expected %d", actual.size(), n);
  for (int i = 0; i < n; ++i) {
    if (std::fabs(actual[i] - expected[i]) <= 1e-9) continue;
    const double times = actual[i] / expected[i];
    if (at.size(1) == 1 && std::fabs(times - parts) < 1e-9)
      at.fail(
          "gradient[%d] is %g, expected %g: %d times too large, each part is divided by its own images only",
          i, actual[i], expected[i], parts);
    at.fail("gradient[%d] is %g, expected %g%s", i, actual[i], expected[i],
            std::isnan(actual[i]) ? ": a part without images has no mean, and 0 times NaN is NaN"
            : std::fabs(actual[i] - mean[i]) < 1e-9
                ? ": a part with few images counts as much as one with many"
                : "");
  }
}

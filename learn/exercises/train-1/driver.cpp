#include <algorithm>

#include "program.h"

void lesson::run(Case& at) {
  const int n = at.size(0);
  for (int repeat = 0; repeat < 4; ++repeat) {
    std::vector<double> logits = at.values<double>(n), gradient(n, 0), expected(n);
    for (double& logit : logits) logit *= at.size(1);
    const int label = static_cast<int>(at.next() % static_cast<unsigned>(n));
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0, total = 0;
    for (double logit : logits) sum += std::exp(logit - largest);
    for (int i = 0; i < n; ++i) expected[i] = std::exp(logits[i] - largest) / sum - (i == label ? 1 : 0);
    const double loss = std::log(sum) + largest - logits[label];
    const double found = cross_entropy(logits, label, gradient);
    for (double each : gradient) total += each;
    if (!(std::fabs(found - loss) <= 1e-9 * (1 + std::fabs(loss))))
      at.fail("the loss is %g, expected %g%s", found, loss,
              std::isnan(found) || std::isnan(total) ? ": the exponential of a large logit is infinite"
              : !std::isinf(found)                   ? ""
              : std::isnan(gradient[0]) || largest - logits[label] < 700
                  ? ": the exponential of a large logit is infinite"
                  : ": a small probability is rounded to 0, which has no logarithm");
    if (!(std::fabs(total) <= 1e-9))
      at.fail(
          "the derivatives add up to %g, expected 0: if all logits grow by the same number, the loss does not change",
          total);
    for (int i = 0; i < n; ++i)
      if (std::fabs(gradient[i] - expected[i]) > 1e-9)
        at.fail("the derivative of logit %d is %g, expected %g", i, gradient[i], expected[i]);
  }
}

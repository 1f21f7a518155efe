// The logarithm of the quotient, as the formula is written.
#include <algorithm>
#include <cmath>
#include <span>

double cross_entropy(std::span<const double> logits, int label, std::span<double> gradient) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  const int n = static_cast<int>(logits.size());
  double sum = 0;
  for (double logit : logits) sum += std::exp(logit - largest);
  for (int i = 0; i < n; ++i) gradient[i] = std::exp(logits[i] - largest) / sum - (i == label ? 1 : 0);
  return -std::log(std::exp(logits[label] - largest) / sum);
}

#include <algorithm>
#include <cmath>
#include <span>

// Returns the loss -log(p[label]) of one image, where p[k] = exp(logits[k]) / (the sum of exp(logits[j]) over all classes j).
// Writes its derivative with respect to each logit to `gradient`.
//
// exp(x) is infinite from x = 710 on. p does not change if the same number is subtracted from all logits.
double cross_entropy(std::span<const double> logits, int label, std::span<double> gradient) {
  // TODO
  return 0;
}

#include "program.h"

enum class Way { right, last_use, first_input, forward };

// The gradients that `backward` computes, or those of one of three mistakes.
static std::vector<double> gradients(const std::vector<Node>& tape, Way way) {
  const int n = static_cast<int>(tape.size());
  std::vector<double> gradient(n, 0);
  gradient.back() = 1;
  for (int step = n - 1; step >= 0; --step) {
    const int node = way == Way::forward ? n - 1 - step : step;
    for (std::size_t i = 0; i < tape[node].inputs.size() && !(i > 0 && way == Way::first_input); ++i) {
      const double part = gradient[node] * tape[node].slopes[i];
      double& into = gradient[tape[node].inputs[i]];
      into = way == Way::last_use ? part : into + part;
    }
  }
  return gradient;
}

void lesson::run(Case& at) {
  const int n = at.size(0);
  std::vector<Node> tape(n);
  std::vector<int> uses(n, 0), user(n, -1);
  for (int node = 1; node < n; ++node) {
    if (node % 5 == 4) continue;  // a leaf
    for (int i = 0; i < 2; ++i) {
      const int input = node - 1 - static_cast<int>(at.next() % static_cast<unsigned>(node < 4 ? node : 4));
      tape[node].inputs.push_back(input);
      tape[node].slopes.push_back(i == 0 ? 0.25 : 0.5 + 0.25 * (at.next() % 2));
      ++uses[input];
      user[input] = node;
    }
  }
  const std::vector<double> actual = backward(tape), expected = gradients(tape, Way::right);
  if (actual.size() != expected.size()) at.fail("found %zu gradients, expected %d", actual.size(), n);
  for (int node = n - 1; node >= 0; --node) {
    if (std::fabs(actual[node] - expected[node]) <= 1e-9 * expected[node]) continue;
    char why[120] = "";
    if (node == n - 1)
      std::snprintf(why, sizeof why, ": %s",
                    actual[node] == 0 ? "no gradient begins"
                                      : "the gradient of the last node with respect to itself is not 1");
    else if (actual == gradients(tape, Way::forward))
      std::snprintf(why, sizeof why, ": node %d, which uses it, had no gradient yet", user[node]);
    else if (actual == gradients(tape, Way::first_input))
      std::snprintf(why, sizeof why, ": an input after the first one has no contribution");
    else if (actual == gradients(tape, Way::last_use))
      std::snprintf(why, sizeof why,
                    ": node %d is used %d times: this is the gradient of one use only; add with +=", node,
                    uses[node]);
    at.fail("gradient[%d] is %g, expected %g%s", node, actual[node], expected[node], why);
  }
}

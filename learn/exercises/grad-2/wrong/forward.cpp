// Visits the nodes in the order in which they were computed.

#include <cstddef>
#include <vector>

// One record of the tape. Inputs are the numbers of earlier nodes; slopes[i] is the derivative with respect to inputs[i].
struct Node {
  std::vector<int> inputs;
  std::vector<double> slopes;
};

std::vector<double> backward(const std::vector<Node>& tape) {
  std::vector<double> gradient(tape.size(), 0);
  gradient.back() = 1;
  for (std::size_t node = 0; node < tape.size(); ++node)
    for (std::size_t i = 0; i < tape[node].inputs.size(); ++i)
      gradient[tape[node].inputs[i]] += gradient[node] * tape[node].slopes[i];
  return gradient;
}

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
  for (std::size_t node = tape.size(); node-- > 0;)
    for (std::size_t i = 0; i < tape[node].inputs.size(); ++i)
      gradient[tape[node].inputs[i]] += gradient[node] * tape[node].slopes[i];
  return gradient;
}

#include <cstddef>
#include <vector>

// A tape has one record per value that a program has computed, in the order of computation. Leaves have no inputs. For the
// program x = 3; y = 2; p = x y; s = p + p the tape is
//   0: {}    1: {}    2: inputs 0, 1, slopes 2, 3    3: inputs 2, 2, slopes 1, 1

// One record of the tape. Inputs are the numbers of earlier nodes; slopes[i] is the derivative with respect to inputs[i].
struct Node {
  std::vector<int> inputs;
  std::vector<double> slopes;
};

// Returns, for each node, the derivative of the last node with respect to it. For the tape above: 4, 6, 2, 1.
std::vector<double> backward(const std::vector<Node>& tape) {
  std::vector<double> gradient(tape.size(), 0);
  // TODO
  return gradient;
}

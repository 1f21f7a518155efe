// A stack: the node that was found last, not the one that was computed last.

#include <queue>
#include <vector>

// A record of the tape: the numbers of the nodes that it was computed from. A leaf has none.
struct Node {
  std::vector<int> inputs;
};

std::vector<int> backward_order(const std::vector<Node>& tape) {
  std::vector<int> pending(tape.size(), 0), order;
  for (const Node& node : tape)
    for (int input : node.inputs) ++pending[input];
  std::vector<int> ready;
  ready.push_back(static_cast<int>(tape.size()) - 1);
  while (!ready.empty()) {
    const int node = ready.back();
    ready.pop_back();
    order.push_back(node);
    for (int input : tape[node].inputs)
      if (--pending[input] == 0) ready.push_back(input);
  }
  return order;
}

// Visits a node once per use.

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
  std::priority_queue<int> ready;
  ready.push(static_cast<int>(tape.size()) - 1);
  while (!ready.empty()) {
    const int node = ready.top();
    ready.pop();
    order.push_back(node);
    for (int input : tape[node].inputs) ready.push(input);
  }
  return order;
}

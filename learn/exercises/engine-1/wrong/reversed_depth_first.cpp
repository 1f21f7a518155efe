// A depth-first search from the loss, reversed: all gradients are right, and all parameters come last.

#include <queue>
#include <vector>

// A record of the tape: the numbers of the nodes that it was computed from. A leaf has none.
struct Node {
  std::vector<int> inputs;
};

static void visit(const std::vector<Node>& tape, int node, std::vector<bool>& seen, std::vector<int>& order) {
  if (seen[node]) return;
  seen[node] = true;
  // The parameters are the second inputs, and are visited first.
  for (std::size_t i = tape[node].inputs.size(); i-- > 0;) visit(tape, tape[node].inputs[i], seen, order);
  order.push_back(node);
}

std::vector<int> backward_order(const std::vector<Node>& tape) {
  std::vector<bool> seen(tape.size(), false);
  std::vector<int> order;
  visit(tape, static_cast<int>(tape.size()) - 1, seen, order);
  std::vector<int> leaves, result;
  for (std::size_t i = order.size(); i-- > 0;)
    (tape[order[i]].inputs.empty() ? leaves : result).push_back(order[i]);
  result.insert(result.end(), leaves.begin(), leaves.end());
  return result;
}

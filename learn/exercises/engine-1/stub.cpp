#include <queue>
#include <vector>

// A record of the tape: the numbers of the nodes that it was computed from. A leaf has none.
struct Node {
  std::vector<int> inputs;
};

// Returns the numbers of all nodes in the order in which the backward pass visits them. It begins with the last node. A node
// is visited after all nodes that use it. Among those that are ready, the one that was computed last (with the largest
// number) comes first. Then the parameters of the last layer are final first, and their sum over several ranks can begin.
std::vector<int> backward_order(const std::vector<Node>& tape) {
  std::vector<int> order;
  // TODO
  return order;
}

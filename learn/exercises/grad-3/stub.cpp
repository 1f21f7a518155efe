#include <vector>

#include "graph.h"

// Computes `gradient` of every node behind the loss. See graph.h: node.inputs() has the nodes that a node was computed from, and
// node.run(dy) returns what dy, its gradient, contributes to each of them.
//
// This version is right. It follows every path from the loss to a leaf, and runs a node once per path.
void propagate(Node& node, double dy) {
  node.gradient += dy;
  const std::vector<double> parts = node.run(dy);
  for (std::size_t i = 0; i < parts.size(); ++i) propagate(*node.inputs()[i], parts[i]);
}

// TODO: run each node once. `pending` of each node is 0 at the beginning, and yours.
void backward(Node& loss) { propagate(loss, 1); }

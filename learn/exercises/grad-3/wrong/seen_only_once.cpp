// Depth first: a node runs when it is reached first, and later contributions do not go further.
#include <vector>

#include "graph.h"

void propagate(Node& node) {
  if (node.pending++ > 0) return;
  const std::vector<double> parts = node.run(node.gradient);
  for (std::size_t i = 0; i < parts.size(); ++i) node.inputs()[i]->gradient += parts[i];
  for (Node* input : node.inputs()) propagate(*input);
}

void backward(Node& loss) {
  loss.gradient = 1;
  propagate(loss);
}

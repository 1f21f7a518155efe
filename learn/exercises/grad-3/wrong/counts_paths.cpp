// Enters a node again for each use, so the uses of its inputs are counted several times.
#include <vector>

#include "graph.h"

void backward(Node& loss) {
  std::vector<Node*> open = {&loss};
  while (!open.empty()) {
    Node& node = *open.back();
    open.pop_back();
    for (Node* input : node.inputs()) ++input->pending, open.push_back(input);
  }
  loss.gradient = 1;
  std::vector<Node*> ready = {&loss};
  while (!ready.empty()) {
    Node& node = *ready.back();
    ready.pop_back();
    const std::vector<double> parts = node.run(node.gradient);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Node& input = *node.inputs()[i];
      input.gradient += parts[i];
      if (--input.pending == 0) ready.push_back(&input);
    }
  }
}

// Nodes wait in a queue, and one that gets a second contribution runs again for it.
#include <vector>

#include "graph.h"

void backward(Node& loss) {
  std::vector<Node*> queue = {&loss};
  std::vector<double> parts_of = {1};
  for (std::size_t at = 0; at < queue.size(); ++at) {
    Node& node = *queue[at];
    double dy = parts_of[at];
    // Joins contributions of neighbors in the queue.
    while (at + 1 < queue.size() && queue[at + 1] == &node && node.pending++ == 0) dy += parts_of[++at];
    node.gradient += dy;
    const std::vector<double> parts = node.run(dy);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      queue.push_back(node.inputs()[i]);
      parts_of.push_back(parts[i]);
    }
  }
}

#include <deque>

#include "program.h"

void lesson::run(Case& at) {
  const int n = at.size(0);
  std::deque<Node> nodes;
  std::vector<std::vector<int>> inputs(n);
  std::vector<std::vector<double>> slopes(n);
  for (int node = 0; node < n; ++node) {
    if (node > 0 && at.size(1) == 1) inputs[node] = {node - 1, node - 1};
    if (node > 0 && at.size(1) == 2)
      inputs[node] = node % 2 == 0 ? std::vector{node / 2, node / 2, node - 1}
                                   : std::vector{node - 1, node / 2, node / 2};
    std::vector<Node*> pointers;
    for (int input : inputs[node]) {
      pointers.push_back(&nodes[input]);
      slopes[node].push_back(at.size(1) == 1 ? 1 : 0.5);
    }
    nodes.emplace_back(pointers, slopes[node]);
  }
  std::vector<double> expected(n, 0);
  expected[n - 1] = 1;
  for (int node = n - 1; node >= 0; --node)
    for (std::size_t i = 0; i < inputs[node].size(); ++i)
      expected[inputs[node][i]] += expected[node] * slopes[node][i];
  Node::runs = 0;
  backward(nodes[n - 1]);
  for (int node = n - 1; node >= 0; --node)
    if (nodes[node].gradient != expected[node])
      at.fail("the gradient of node %d is %g, expected %g: %s", node, nodes[node].gradient, expected[node],
              nodes[node].gradient == 0
                  ? "a node that uses it never ran"
                  : "a node was run before all nodes that use it: its gradient was incomplete");
  at.count("runs", static_cast<double>(Node::runs));
}

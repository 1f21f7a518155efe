#include <algorithm>

#include "program.h"

// The tape of a network, and the number of the parameter of each layer. In kind 2, each layer's result is added to its input.
struct Network {
  std::vector<Node> tape;
  std::vector<int> parameters, layers;
};

static Network network_of(int layers, bool has_shortcuts, bool is_reversed) {
  Network network;
  network.tape.push_back({});  // the input
  int x = 0;
  const auto record = [&](std::vector<int> inputs) {
    if (is_reversed) std::reverse(inputs.begin(), inputs.end());
    network.tape.push_back({inputs});
    return static_cast<int>(network.tape.size()) - 1;
  };
  for (int layer = 0; layer < layers; ++layer) {
    network.parameters.push_back(record({}));
    const int shortcut = has_shortcuts ? record({x}) : x;
    int y = record({x, network.parameters.back()});
    network.layers.push_back(y);
    if (has_shortcuts) y = record({y});
    x = has_shortcuts ? record({shortcut, y}) : y;
  }
  return network;
}

static std::vector<int> places_of(lesson::Case& at, const Network& network, const std::vector<int>& order) {
  const std::size_t n = network.tape.size();
  if (order.size() != n) at.fail("the order has %zu nodes, expected %zu", order.size(), n);
  std::vector<int> place(n, -1);
  for (std::size_t i = 0; i < n; ++i) {
    if (order[i] < 0 || order[i] >= static_cast<int>(n))
      at.fail("found node %d, expected 0 to %zu", order[i], n - 1);
    if (place[order[i]] >= 0) at.fail("node %d occurs twice", order[i]);
    place[order[i]] = static_cast<int>(i);
  }
  for (int node = 0; node < static_cast<int>(n); ++node)
    for (int input : network.tape[node].inputs)
      if (place[input] < place[node])
        at.fail("node %d is visited before node %d, which uses it", input, node);
  return place;
}

void lesson::run(Case& at) {
  const int layers = at.size(0);
  std::vector<int> orders[2];
  for (const bool is_reversed : {false, true}) {
    const Network network = network_of(layers, at.size(1) == 2, is_reversed);
    const std::vector<int> order = backward_order(network.tape), place = places_of(at, network, order);
    for (int layer = layers - 1; layer >= 0 && !is_reversed; --layer) {
      int done = 0;
      for (int node : network.layers) done += place[node] < place[network.parameters[layer]];
      if (done != layers - layer)
        at.fail(
            "the gradients are right, but the parameter of layer %d is final after %d of %d layers, expected %d",
            layer, done, layers, layers - layer);
    }
    orders[is_reversed] = order;
  }
  const std::vector<Node> tape = network_of(layers, at.size(1) == 2, false).tape;
  std::vector<int> pending(tape.size(), 0);
  for (const Node& node : tape)
    for (int input : node.inputs) ++pending[input];
  for (int node : orders[0]) {
    for (int other = static_cast<int>(tape.size()) - 1; other > node; --other)
      if (pending[other] == 0)
        at.fail("node %d is visited while node %d is ready, which was computed later", node, other);
    pending[node] = -1;
    for (int input : tape[node].inputs) --pending[input];
  }
  for (std::size_t i = 0; i < orders[0].size(); ++i)
    if (orders[0][i] != orders[1][i])
      at.fail("the order of node %d depends on the order in which the inputs of an operation are listed",
              orders[0][i]);
}

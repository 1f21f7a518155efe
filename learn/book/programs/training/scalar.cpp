// Rung 0: derivatives by one call per path through the graph.
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

struct Node;
using Number = std::shared_ptr<Node>;

struct Node {
  double value = 0, gradient = 0;
  std::vector<Number> inputs;
  std::vector<double> slopes;  // the derivative of the value with respect to each input
};

Number number(double value) { return std::make_shared<Node>(Node{value, 0, {}, {}}); }

Number add(Number a, Number b) {
  return std::make_shared<Node>(Node{a->value + b->value, 0, {a, b}, {1, 1}});
}

Number mul(Number a, Number b) {
  return std::make_shared<Node>(Node{a->value * b->value, 0, {a, b}, {b->value, a->value}});
}

long visits = 0;

void backward(Node& node, double gradient) {
  ++visits;
  node.gradient += gradient;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) backward(*node.inputs[i], gradient * node.slopes[i]);
}

int main() {
  Number x = number(3), y = number(2);
  Number z = add(mul(x, y), mul(x, x));
  backward(*z, 1);
  std::printf("z = %g, dz/dx = %g, dz/dy = %g, %ld visits\n", z->value, x->gradient, y->gradient, visits);
  for (int depth : {10, 20, 24}) {
    Number sum = number(1);
    for (int i = 0; i < depth; ++i) sum = add(sum, sum);
    visits = 0;
    backward(*sum, 1);
    std::printf("x doubled %d times: %d nodes, %ld visits\n", depth, depth + 1, visits);
  }
}

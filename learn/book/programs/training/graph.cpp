// Prints each step of a backward pass of z = sum(x y + exp(x)), as JSON.
#include <cstdio>
#include <map>

#include "../../../common/tiny_autograd.h"

using namespace tiny;

int main() {
  Value x = parameter(Matrix(1, 1, 0)), y = parameter(Matrix(1, 1, 2));
  Value product = mul(x, y), power = exp(x), both = add(product, power), z = sum(both);
  const std::vector<std::pair<const char*, Value>> nodes = {{"x", x},       {"y", y},      {"mul", product},
                                                            {"exp", power}, {"add", both}, {"sum", z}};
  std::printf("{\"frames\": {");
  int step = 0;
  const auto frame = [&](const Node* now) {
    std::printf("%s\"%d\": {", step == 0 ? "" : ",\n", step + 1);
    ++step;
    for (const auto& [name, node] : nodes)
      std::printf("\"%s\": {\"now\": %d, \"pending\": %d, \"gradient\": %g, \"has\": %d}%s", name,
                  node.get() == now, node->pending, node->gradient.size() == 1 ? node->gradient[0] : 0,
                  node->gradient.size() == 1, node == z ? "" : ", ");
    std::printf("}");
  };
  backward(z, [&](const Node& node) { frame(&node); });
  std::printf("},\n\"dx\": %g, \"dy\": %g}\n", x->gradient[0], y->gradient[0]);
}

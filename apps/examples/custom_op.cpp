// The gradient of an op of one's own, softsign.h, is checked, and the op is composed with others.
#include <convoy/convoy.h>
#include <fmt/format.h>

#include <string_view>

#include "convoy/apps/examples/softsign.h"

using namespace convoy;
using examples::softsign;

int main(int argc, char** argv) {
  if (argc > 1) {
    fmt::print("usage: custom_op (without arguments)\n");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  try {
    check_gradients([](auto x) { return softsign(x[0]); }, {{3, 5}}, {.low = -6, .high = 6});
    // Composed with other ops, the gradient of the composition follows.
    check_gradients([](auto x) { return softmax(softsign(x[0]) * x[1], -1); }, {{3, 5}, {5}});
    fmt::print("the gradients of softsign are right\n");

    const Variable x(Tensor::from<float>({-1, 0, 1}, {3}, Device::cpu()), /*requires_grad=*/true);
    const Variable y = softsign(x);
    backward(sum(y));
    fmt::print("softsign({}) = {:.4f}, slope {:.4f}\n", -1, y.value().to_vector<float>()[0],
               x.grad().to_vector<float>()[0]);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "custom_op: error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}

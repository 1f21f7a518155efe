// The gradient of the loss only.
#include <cstddef>
#include <span>

void step(std::span<double> weights, std::span<const double> gradients, std::span<double> velocity,
          double rate, double momentum, double decay) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    velocity[i] = momentum * velocity[i] + gradients[i] + 0 * decay;
    weights[i] -= rate * velocity[i];
  }
}

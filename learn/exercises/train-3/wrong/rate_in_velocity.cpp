// The rate is in the velocity: right while it does not change.
#include <cstddef>
#include <span>

void step(std::span<double> weights, std::span<const double> gradients, std::span<double> velocity,
          double rate, double momentum, double decay) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    velocity[i] = momentum * velocity[i] + rate * (gradients[i] + decay * weights[i]);
    weights[i] -= velocity[i];
  }
}

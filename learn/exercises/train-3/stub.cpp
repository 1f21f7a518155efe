#include <cstddef>
#include <span>

// One step of gradient descent. The gradient of each weight w is g + decay w, where g comes from the loss: large weights
// are pulled back. The velocity is momentum times the velocity before plus this gradient, and the weight becomes smaller by rate
// times the new velocity. The velocity is yours, and 0 before the first step.
void step(std::span<double> weights, std::span<const double> gradients, std::span<double> velocity,
          double rate, double momentum, double decay) {
  // TODO
}

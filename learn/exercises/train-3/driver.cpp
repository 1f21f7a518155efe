#include "program.h"

enum class Way { right, last_gradient, rate_in_velocity, no_decay, old_velocity };

// One weight after all steps, computed rightly or with one of the usual mistakes.
static double weight_after(Way way, double weight, const std::vector<double>& gradients,
                           const std::vector<double>& rates, double momentum, double decay) {
  double velocity = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const double gradient = gradients[i] + (way == Way::no_decay ? 0 : decay * weight);
    const double before = velocity;
    velocity = way == Way::last_gradient ? gradient : momentum * velocity + gradient;
    if (way == Way::rate_in_velocity) velocity = momentum * before + rates[i] * gradient;
    weight -=
        way == Way::rate_in_velocity ? velocity : rates[i] * (way == Way::old_velocity ? before : velocity);
  }
  return weight;
}

void lesson::run(Case& at) {
  const int n = at.size(0), steps = at.size(1);
  const double momentum = 0.9, decay = 0.125;
  std::vector<double> weights = at.values<double>(n), velocity(n, 0), rates;
  const std::vector<double> first = weights;
  std::vector<std::vector<double>> gradients(n);  // of each weight
  for (int i = 0; i < steps; ++i) {
    const std::vector<double> each = at.values<double>(n);
    for (int j = 0; j < n; ++j) gradients[j].push_back(each[j]);
    rates.push_back(0.5 / (i + 1));
    step(weights, each, velocity, rates.back(), momentum, decay);
    for (int j = 0; j < n; ++j) {
      const auto after = [&](Way way) {
        return weight_after(way, first[j], gradients[j], rates, momentum, decay);
      };
      const double expected = after(Way::right);
      const auto is = [&](Way way) { return std::fabs(weights[j] - after(way)) < 1e-9; };
      if (is(Way::right)) continue;
      at.fail("after step %d, weight[%d] is %g, expected %g%s", i + 1, j, weights[j], expected,
              is(Way::no_decay)           ? ": the weight has not decayed"
              : is(Way::last_gradient)    ? ": without the gradients of earlier steps"
              : is(Way::rate_in_velocity) ? ": the velocity has the learning rate of an earlier step in it"
              : is(Way::old_velocity)     ? ": the velocity of the step before"
                                          : "");
    }
  }
}

#include "convoy/apps/train/learning_rates.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace convoy {

LearningRates::LearningRates(const TrainOptions& options, std::int64_t total_steps,
                             std::int64_t steps_per_epoch) {
  const auto add = [&](std::int64_t steps, std::int64_t end) {
    const auto warmup = std::llround(*options.warmup * static_cast<double>(steps));
    rates_.push_back(
        {.schedule = optim::make_schedule(
             *options.schedule,
             {.peak = *options.lr, .steps = steps, .warmup = std::min<std::int64_t>(warmup, steps - 1)}),
         .end = end});
  };
  add(total_steps, std::numeric_limits<std::int64_t>::max());
  for (const FreezeRule& rule : parse_freeze_rules(*options.freeze)) {
    if (!rule.epochs) continue;  // no parameter of it is trained
    const double steps = std::min(*rule.epochs * static_cast<double>(steps_per_epoch),
                                  static_cast<double>(total_steps));  // before rounding, which could overflow
    const std::int64_t end = std::max<std::int64_t>(std::llround(steps), 1);
    add(end, end);
  }
}

std::vector<double> LearningRates::at(std::int64_t step) const {
  std::vector<double> rates;
  for (const Rate& rate : rates_) rates.push_back(step < rate.end ? rate.schedule(step) : 0);
  return rates;
}

bool LearningRates::freeze_ended(const std::vector<optim::ParameterGroup>& groups, std::int64_t step) const {
  const auto has_rate = [&](const optim::ParameterGroup& group) {
    return step < rates_.at(static_cast<std::size_t>(group.rate)).end;
  };
  const bool all_ended = std::none_of(groups.begin(), groups.end(), has_rate);  // backward needs a parameter
  bool changes = false;
  for (const optim::ParameterGroup& group : groups) {
    const bool trains = has_rate(group) || all_ended;
    for (const nn::NamedParameter& parameter : group.parameters) {
      changes = changes || parameter.variable.requires_grad() != trains;
      parameter.variable.set_requires_grad(trains);
    }
  }
  return changes;
}

}  // namespace convoy

#include "convoy/apps/train/learning_rates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "convoy/kernels/base/check.h"

namespace convoy {

std::vector<double> parse_milestones(const std::string& text) {
  std::vector<double> milestones = parse_numbers(text);
  const bool is_valid = !milestones.empty() && std::all_of(milestones.begin(), milestones.end(),
                                                           [](double milestone) { return milestone > 0; });
  check(is_valid,
        "--milestones: found '{}', expected fractions of all steps or epochs, such as 0.5,0.75 or 30,60,90",
        text);
  return milestones;
}

LearningRates::LearningRates(const TrainOptions& options, std::int64_t total_steps,
                             std::int64_t steps_per_epoch) {
  const std::int64_t warmup_steps = options.warmup->steps(total_steps, steps_per_epoch);
  check(options.warmup->unit == TrainingLength::Unit::fraction || warmup_steps < total_steps,
        "--warmup {}: found a training of {} steps, expected a shorter warmup", options.warmup->text(),
        total_steps);
  const bool is_exponential = options.schedule == "exponential", is_plateau = options.schedule == "plateau";
  optim::ScheduleShape shape{.milestones = {}, .period = steps_per_epoch};
  shape.factor = options.gamma.value_or(shape.factor);
  shape.power = options.power.value_or(shape.power);
  for (const double milestone :
       options.milestones ? parse_milestones(*options.milestones) : std::vector<double>()) {
    const double fraction =
        milestone < 1 ? milestone
                      : milestone * static_cast<double>(steps_per_epoch) / static_cast<double>(total_steps);
    if (fraction < 1) shape.milestones.push_back(fraction);  // others come after the training
  }
  const auto add = [&](std::int64_t steps, std::int64_t end) {
    const std::int64_t warmup = options.warmup->steps(steps, steps_per_epoch);
    optim::ScheduleShape own = shape;  // with the length of this schedule
    if (is_exponential && steps < total_steps)
      own.period = std::max<std::int64_t>(
          1, std::llround(static_cast<double>(steps_per_epoch) * static_cast<double>(steps) /
                          static_cast<double>(total_steps)));
    rates_.push_back({.schedule = optim::make_schedule(is_plateau ? "constant" : *options.schedule,
                                                       {.peak = peak_rate(options),
                                                        .steps = steps,
                                                        .warmup = std::min<std::int64_t>(warmup, steps - 1),
                                                        .final = is_plateau ? 0 : options.min_lr},
                                                       own),
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

std::vector<double> LearningRates::at(std::int64_t step, double limit) const {
  std::vector<double> rates;
  for (const Rate& rate : rates_) rates.push_back(step < rate.end ? std::min(rate.schedule(step), limit) : 0);
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

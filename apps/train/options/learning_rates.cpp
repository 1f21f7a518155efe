#include "convoy/apps/train/options/learning_rates.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "convoy/apps/common/text.h"
#include "convoy/kernels/base/check.h"

namespace convoy {

std::vector<double> parse_milestones(const std::string& text) {
  std::vector<double> milestones;
  for (const std::string& word : split(text + ","))  // with spaces after commas or without
    milestones.push_back(
        number_in<double>(word.substr(std::min(word.find_first_not_of(' '), word.size()))).value_or(0));
  check(*std::ranges::min_element(milestones) > 0,
        "--milestones: found '{}', expected fractions of all steps or epochs, such as 0.5,0.75 or 30,60,90",
        text);
  return milestones;
}

namespace {

/// The steps of a training.
struct TrainingSteps {
  std::int64_t total, per_epoch;
};

/// Returns the milestones as fractions of all steps. Those after the training are left out.
std::vector<double> milestone_fractions(const std::string& text, const TrainingSteps& training) {
  std::vector<double> fractions;
  for (const double milestone : parse_milestones(text)) {
    const double fraction = milestone < 1 ? milestone
                                          : milestone * static_cast<double>(training.per_epoch) /
                                                static_cast<double>(training.total);
    if (fraction < 1) fractions.push_back(fraction);
  }
  return fractions;
}

/// Returns the schedule of a training whose rate ends after `steps`.
optim::Schedule schedule_of(const TrainOptions& options, std::int64_t steps, const TrainingSteps& training) {
  const std::int64_t warmup = warmup_of(*options.schedule).steps(steps, training.per_epoch);
  optim::ScheduleOptions common{.peak = *options.lr,
                                .steps = steps,
                                .warmup = std::min<std::int64_t>(warmup, steps - 1),
                                .final = min_lr_of(*options.schedule)};
  return std::visit(
      [&](const auto& chosen) -> optim::Schedule {
        using T = std::decay_t<decltype(chosen)>;
        if constexpr (std::is_same_v<T, LinearSchedule>) return optim::linear(common);
        if constexpr (std::is_same_v<T, CosineSchedule>)
          return optim::cosine(common, static_cast<int>(chosen.cycles), chosen.growth);
        if constexpr (std::is_same_v<T, OneCycleSchedule>) return optim::one_cycle(common);
        if constexpr (std::is_same_v<T, PolynomialSchedule>) return optim::polynomial(common, chosen.power);
        if constexpr (std::is_same_v<T, StepSchedule>)
          return optim::step_decay(common, milestone_fractions(chosen.milestones, training), chosen.gamma);
        if constexpr (std::is_same_v<T, ExponentialSchedule>) {
          const double part = static_cast<double>(steps) / static_cast<double>(training.total);
          const auto period = std::llround(static_cast<double>(training.per_epoch) * part);
          return optim::exponential(
              common, chosen.gamma,
              steps < training.total ? std::max<std::int64_t>(1, period) : training.per_epoch);
        }
        common.final = 0;  // constant; the minimum of plateau is that of its callback
        return optim::constant(common);
      },
      *options.schedule);
}

}  // namespace

LearningRates::LearningRates(const TrainOptions& options, std::int64_t total_steps,
                             std::int64_t steps_per_epoch) {
  const TrainingLength warmup = warmup_of(*options.schedule);
  check(warmup.unit == TrainingLength::Unit::fraction ||
            warmup.steps(total_steps, steps_per_epoch) < total_steps,
        "--warmup {}: found a training of {} steps, expected a shorter warmup", warmup.text(), total_steps);
  const auto add = [&](std::int64_t steps, std::int64_t end) {
    rates_.push_back({.schedule = schedule_of(options, steps, {total_steps, steps_per_epoch}), .end = end});
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
  const bool all_ended = std::ranges::none_of(groups, has_rate);  // backward needs a parameter
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

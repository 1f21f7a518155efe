#include "convoy/apps/train/learning_rates.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

FreezeRule parse_rule(std::string_view word) {
  const std::size_t equals = word.find('=');
  FreezeRule rule{.prefix = std::string(word.substr(0, equals))};
  const std::string_view number = equals == std::string_view::npos ? "" : word.substr(equals + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rule.epochs);
  check(!rule.prefix.empty() && error == std::errc() && end == number.data() + number.size() &&
            std::isfinite(rule.epochs) && rule.epochs > 0,
        "--freeze: found '{}', expected PREFIX=EPOCHS with more than 0 epochs", word);
  return rule;
}

bool belongs(const nn::NamedParameter& parameter, const FreezeRule& rule) {
  return parameter.name == rule.prefix || parameter.name.starts_with(rule.prefix + ".");
}

/// Returns the first parts of all names, as in "whiten, layers, head".
std::string prefixes_of(const std::vector<optim::ParameterGroup>& groups) {
  std::set<std::string> prefixes;
  for (const optim::ParameterGroup& group : groups)
    for (const nn::NamedParameter& parameter : group.parameters)
      prefixes.insert(parameter.name.substr(0, parameter.name.find('.')));
  return fmt::format("{}", fmt::join(prefixes, ", "));
}

}  // namespace

std::vector<FreezeRule> parse_freeze_rules(std::string_view text) {
  std::vector<FreezeRule> rules;
  if (text == "none") return rules;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    rules.push_back(parse_rule(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return rules;
}

std::vector<optim::ParameterGroup> apply_freeze_rules(const std::vector<optim::ParameterGroup>& groups,
                                                      const std::vector<FreezeRule>& rules) {
  std::vector<optim::ParameterGroup> rest = groups, divided;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const std::size_t before = divided.size();
    for (optim::ParameterGroup& group : rest) {
      optim::ParameterGroup part = group;
      part.rate = static_cast<int>(i) + 1;
      std::erase_if(part.parameters, [&](const auto& parameter) { return !belongs(parameter, rules[i]); });
      std::erase_if(group.parameters, [&](const auto& parameter) { return belongs(parameter, rules[i]); });
      if (!part.parameters.empty()) divided.push_back(std::move(part));
    }
    check(
        divided.size() > before,
        "--freeze {}={}: no parameter has a name that begins with '{}', expected a part of a name, such as {}",
        rules[i].prefix, rules[i].epochs, rules[i].prefix, prefixes_of(groups));
  }
  std::erase_if(rest, [](const optim::ParameterGroup& group) { return group.parameters.empty(); });
  rest.insert(rest.end(), divided.begin(), divided.end());
  return rest;
}

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
    const double steps = std::min(rule.epochs * static_cast<double>(steps_per_epoch),
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

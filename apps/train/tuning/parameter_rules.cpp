#include "convoy/apps/train/tuning/parameter_rules.h"

#include <algorithm>
#include <set>

#include "convoy/apps/common/text.h"
#include "convoy/apps/train/tuning/initial_parameters.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

using Groups = std::vector<optim::ParameterGroup>;

/// Returns the words between the commas, of which some may be empty; none of "none".
std::vector<std::string> split_list(std::string_view text) {
  return text == "none" ? std::vector<std::string>() : split(std::string(text) + ",");
}

bool belongs(std::string_view parameter, const std::string& prefix) {
  return parameter == prefix || parameter.starts_with(prefix + ".");
}

/// Returns the first parts of all names, as in "whiten, layers, head".
std::string prefixes_of(const Groups& groups) {
  std::set<std::string> prefixes;
  for (const optim::ParameterGroup& group : groups)
    for (const nn::NamedParameter& parameter : group.parameters)
      prefixes.insert(parameter.name.substr(0, parameter.name.find('.')));
  return fmt::format("{}", fmt::join(prefixes, ", "));
}

/// Moves the parameters for which `is_taken` returns true from `groups` to copies of their groups, and returns these.
template <class F>
Groups take_if(Groups& groups, const F& is_taken) {
  Groups taken;
  for (optim::ParameterGroup& group : groups) {
    optim::ParameterGroup part = group;
    std::erase_if(part.parameters, [&](const auto& parameter) { return !is_taken(parameter); });
    std::erase_if(group.parameters, is_taken);
    if (!part.parameters.empty()) taken.push_back(std::move(part));
  }
  std::erase_if(groups, [](const optim::ParameterGroup& group) { return group.parameters.empty(); });
  return taken;
}

/// Does so for the parameters with the prefix.
Groups take(Groups& groups, const std::string& prefix) {
  return take_if(groups,
                 [&](const nn::NamedParameter& parameter) { return belongs(parameter.name, prefix); });
}

[[noreturn]] void refuse_prefix(const std::string& rule, const std::string& prefix, const Groups& groups) {
  fail<UsageError>(
      "{}: no parameter has a name that begins with '{}', expected a part of a name, such as {}; the first rule "
      "of a parameter counts",
      rule, prefix, prefixes_of(groups));
}

}  // namespace

std::vector<FreezeRule> parse_freeze_rules(std::string_view text) {
  std::vector<FreezeRule> rules;
  for (const std::string& word : split_list(text)) {
    const std::size_t equals = word.find('=');
    FreezeRule rule{.prefix = word.substr(0, equals), .epochs = {}};
    if (equals != std::string::npos) rule.epochs = number_in<double>(word.substr(equals + 1));
    check(!rule.prefix.empty() && (equals == std::string::npos || rule.epochs.value_or(0) > 0),
          "--freeze: found '{}', expected PREFIX, or PREFIX=EPOCHS with more than 0 epochs", word);
    rules.push_back(std::move(rule));
  }
  return rules;
}

Groups apply_freeze_rules(const Groups& groups, const std::vector<FreezeRule>& rules) {
  Groups rest = groups, divided;
  int rate = 0;
  for (const FreezeRule& rule : rules) {
    Groups taken = take(rest, rule.prefix);
    if (taken.empty())
      refuse_prefix(fmt::format("--freeze {}{}", rule.prefix,
                                rule.epochs ? fmt::format("={}", *rule.epochs) : std::string()),
                    rule.prefix, groups);
    if (!rule.epochs) continue;
    ++rate;
    for (optim::ParameterGroup& group : taken) {
      group.rate = rate;
      divided.push_back(std::move(group));
    }
  }
  rest.insert(rest.end(), divided.begin(), divided.end());
  check(!rest.empty(), "--freeze: all parameters are frozen, expected at least one to train");
  return rest;
}

void freeze_parameters(const models::Model& model, const std::vector<FreezeRule>& rules) {
  const auto is_frozen = [&](const std::string& name) {
    const auto rule =
        std::ranges::find_if(rules, [&](const FreezeRule& each) { return belongs(name, each.prefix); });
    return rule != rules.end() && !rule->epochs;
  };
  for (const nn::NamedParameter& parameter : model.parameters())
    if (is_frozen(parameter.name)) parameter.variable.set_requires_grad(false);
  for (nn::Module* const module : model.root().modules()) {
    auto* const norm = dynamic_cast<nn::BatchNorm2d*>(module);
    if (norm == nullptr) continue;
    const std::vector<nn::NamedParameter> own = norm->parameters();
    norm->freeze_statistics(std::ranges::all_of(own, [&](const nn::NamedParameter& parameter) {
      return is_frozen(norm->path() + "." + parameter.name);
    }));
  }
}

std::vector<RateRule> parse_rate_rules(std::string_view text) {
  std::vector<RateRule> rules;
  for (const std::string& word : split_list(text)) {
    const std::size_t equals = std::min(word.find('='), word.size());
    std::string value = word.substr(std::min(equals + 1, word.size()));
    const bool is_factor = value.ends_with('x');
    if (is_factor) value.pop_back();
    const std::optional<double> number = number_in<double>(value);
    check(equals > 0 && number && *number >= 0,
          "--lr-for: found '{}', expected PREFIX=FACTORx or PREFIX=RATE, such as head=10x or head=0.01",
          word);
    rules.push_back({.prefix = word.substr(0, equals), .value = *number, .is_factor = is_factor});
  }
  return rules;
}

std::vector<RateRule> resolve_rate_rules(std::vector<RateRule> rules, const models::Model& model,
                                         const Groups& groups) {
  Groups rest = groups;
  for (RateRule& rule : rules) {
    const std::string text =
        fmt::format("--lr-for {}={}{}", rule.prefix, rule.value, rule.is_factor ? "x" : "");
    if (rule.prefix == "head") rule.prefix = head_of(model);
    if (take(rest, rule.prefix).empty()) refuse_prefix(text, rule.prefix, groups);
  }
  return rules;
}

Groups apply_bias_rate(const Groups& groups, double factor) {
  Groups rest = groups;
  Groups biases =
      take_if(rest, [](const nn::NamedParameter& each) { return each.variable.shape().rank() < 2; });
  for (optim::ParameterGroup& group : biases) {
    group.lr_scale *= factor;
    group.weight_decay /= factor;
  }
  rest.insert(rest.end(), biases.begin(), biases.end());
  return rest;
}

Groups apply_rate_rules(const Groups& groups, const std::vector<RateRule>& rules, double peak) {
  Groups rest = groups, divided;
  for (const RateRule& rule : rules)
    for (optim::ParameterGroup& group : take(rest, rule.prefix)) {
      group.lr_scale = rule.is_factor ? group.lr_scale * rule.value : rule.value / peak;
      divided.push_back(std::move(group));
    }
  rest.insert(rest.end(), divided.begin(), divided.end());
  return rest;
}

}  // namespace convoy

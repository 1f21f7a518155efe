// The rules of --freeze and --lr-for, which apply to parameters by prefixes of their names, and of --bias-lr.
// A prefix stands for the parameter of this name, and for those whose name begins with it and a dot. A
// parameter belongs to the first rule that matches it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/engine/optim/optimizer.h"
#include "convoy/models/model.h"

namespace convoy {

/// One rule of --freeze.
struct FreezeRule {
  std::string prefix;
  /// The epochs after which the learning rate of the parameters has reached its end; more than 0, may have a
  /// fraction. nullopt: they are not trained at all.
  std::optional<double> epochs;
};

/// Parses the text of --freeze, a comma-separated list of PREFIX and PREFIX=EPOCHS; "none" has no rules.
/// Throws UsageError for another text.
std::vector<FreezeRule> parse_freeze_rules(std::string_view text);

/// Removes the parameters of rules without epochs. Moves those of the other rules into groups of their own,
/// whose rate has the index 1 for the first of these rules, 2 for the second, and so on. Throws UsageError if
/// a rule matches no parameter that an earlier rule has left, or if no parameter is left at all.
std::vector<optim::ParameterGroup> apply_freeze_rules(const std::vector<optim::ParameterGroup>& groups,
                                                      const std::vector<FreezeRule>& rules);

/// Lets the parameters of rules without epochs require no gradient. Batch norms all of whose parameters are
/// among them normalize by their running statistics from now on, and do not change these.
void freeze_parameters(const models::Model& model, const std::vector<FreezeRule>& rules);

/// One rule of --lr-for.
struct RateRule {
  std::string prefix;      // "head" is the last layer of any model
  double value = 1;        // at least 0
  bool is_factor = false;  // of --lr, else the value is the peak rate
};

/// Parses the text of --lr-for, a comma-separated list of PREFIX=FACTORx and PREFIX=RATE; "none" has no
/// rules. Throws UsageError for another text.
std::vector<RateRule> parse_rate_rules(std::string_view text);

/// Replaces the prefix "head" by the name of the last layer of the model. Throws UsageError if a rule matches
/// no parameter of `groups` that an earlier rule has left.
std::vector<RateRule> resolve_rate_rules(std::vector<RateRule> rules, const models::Model& model,
                                         const std::vector<optim::ParameterGroup>& groups);

/// Moves biases and the parameters of norms, which have one axis, into groups of their own. Multiplies the
/// lr_scale of these by `factor`, which must be more than 0, and divides their weight decay by it, so that a
/// rate times a decay is the same for all parameters (as optim::muon_groups() does).
std::vector<optim::ParameterGroup> apply_bias_rate(const std::vector<optim::ParameterGroup>& groups,
                                                   double factor);

/// Moves the parameters of each rule into groups of their own, with the lr_scale of the rule: its factor
/// times that of their group, or its rate divided by `peak`, the rate of --lr.
std::vector<optim::ParameterGroup> apply_rate_rules(const std::vector<optim::ParameterGroup>& groups,
                                                    const std::vector<RateRule>& rules, double peak);

}  // namespace convoy

// The learning rates of a training: that of --schedule, and one for each rule of --freeze.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/apps/train/options.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/engine/optim/schedule.h"

namespace convoy {

/// One rule of --freeze: parameters whose learning rate reaches its end after some epochs.
struct FreezeRule {
  std::string prefix;  // the parameters with this name, and those whose name begins with it and a dot
  double epochs = 0;   // more than 0; may have a fraction
};

/// Parses the text of --freeze, a comma-separated list of PREFIX=EPOCHS; "none" has no rules. Throws UsageError
/// for another text.
std::vector<FreezeRule> parse_freeze_rules(std::string_view text);

/// Moves the parameters of each rule into groups of their own, whose rate has the index 1 for the first rule, 2
/// for the second, and so on. Throws UsageError if a rule matches no parameter that an earlier rule has left.
std::vector<optim::ParameterGroup> apply_freeze_rules(const std::vector<optim::ParameterGroup>& groups,
                                                      const std::vector<FreezeRule>& rules);

/// Functions of the step, in the order of ParameterGroup::rate. The rate of a rule has the shape of --schedule,
/// but ends with the rule's epochs, or with the training if that ends first. From there on it is 0.
class LearningRates {
 public:
  /// `options` must be resolved. Throws UsageError for an invalid schedule.
  LearningRates(const TrainOptions& options, std::int64_t total_steps, std::int64_t steps_per_epoch);
  /// Returns the rates of a step; steps count from 0.
  std::vector<double> at(std::int64_t step) const;
  /// Lets the parameters of `groups` require gradients unless their rate has ended at this step: from then on, backward
  /// skips the layers that compute nothing else. Changes nothing if all rates have ended.
  /// Returns whether that changes any parameter.
  bool freeze_ended(const std::vector<optim::ParameterGroup>& groups, std::int64_t step) const;

 private:
  struct Rate {
    optim::Schedule schedule;
    std::int64_t end;  // the first step with a rate of 0
  };
  std::vector<Rate> rates_;
};

}  // namespace convoy

// The learning rates of a training: that of --schedule, and one for each rule of --freeze with epochs.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "convoy/apps/train/options/options.h"
#include "convoy/apps/train/tuning/parameter_rules.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/engine/optim/schedule.h"

namespace convoy {

/// Parses the text of --milestones: fractions of all steps below 1, and epochs. Throws UsageError unless all
/// are more than 0.
std::vector<double> parse_milestones(const std::string& text);

/// Functions of the step, in the order of ParameterGroup::rate. The rate of a rule with epochs has the shape
/// of --schedule, but ends with the rule's epochs, or with the training if that ends first. From there on it
/// is 0.
class LearningRates {
 public:
  /// `options` must be resolved. Throws UsageError for an invalid schedule, and for a warmup that is longer
  /// than the training.
  LearningRates(const TrainOptions& options, std::int64_t total_steps, std::int64_t steps_per_epoch);
  /// Returns the rates of a step, but no more than the rate `limit`; steps count from 0.
  std::vector<double> at(std::int64_t step, double limit = std::numeric_limits<double>::infinity()) const;
  /// Lets the parameters of `groups` require gradients unless their rate has ended at this step: from then
  /// on, backward skips the layers that compute nothing else. Changes nothing if all rates have ended.
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

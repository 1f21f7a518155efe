// The optimizer of a training, from the flags, the recipe and the rules by parameter names.
#pragma once

#include <memory>
#include <vector>

#include "convoy/apps/train/options/options.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/models/model.h"

namespace convoy {

/// Returns the parameters of the model in groups with the rates and weight decays of `options`, which must be
/// resolved, and freezes those of --freeze. Throws UsageError for rules that match no parameter.
std::vector<optim::ParameterGroup> make_parameter_groups(const TrainOptions& options,
                                                         const models::Model& model);

/// Makes the optimizer of --optimizer for these groups of the model, or for shards of them.
std::unique_ptr<optim::Optimizer> make_optimizer(const TrainOptions& options, const models::Model& model,
                                                 std::vector<optim::ParameterGroup> groups);

}  // namespace convoy

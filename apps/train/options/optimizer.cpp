#include "convoy/apps/train/options/optimizer.h"

#include <type_traits>
#include <utility>

#include "convoy/apps/train/tuning/parameter_rules.h"
#include "convoy/engine/optim/muon.h"

namespace convoy {
namespace {

std::vector<RateRule> rate_rules_of(const TrainOptions& options, const models::Model& model,
                                    const std::vector<optim::ParameterGroup>& groups) {
  return resolve_rate_rules(parse_rate_rules(options.lr_for), model, groups);
}

std::unique_ptr<optim::Optimizer> make_muon(const MuonOptions& muon, const TrainOptions& options,
                                            const std::vector<optim::ParameterGroup>& groups,
                                            const std::vector<RateRule>& rate_rules) {
  optim::MuonGroups divided = optim::muon_groups(
      groups, {.sgd_lr_scale = *muon.sgd_lr / *options.lr, .bias_lr_scale = *options.bias_lr / *muon.sgd_lr});
  divided.matrices = apply_rate_rules(divided.matrices, rate_rules, *options.lr);
  divided.others = apply_rate_rules(divided.others, rate_rules, *options.lr);
  if (muon.normalize_filters)
    for (optim::ParameterGroup& group : divided.matrices) group.weight_decay = 0;
  return std::make_unique<optim::Muon>(std::move(divided),
                                       optim::MuonSettings{.momentum = muon.momentum,
                                                           .nesterov = *muon.nesterov,
                                                           .ns_steps = static_cast<int>(muon.ns_steps),
                                                           .normalize = muon.normalize_filters,
                                                           .sgd_momentum = muon.sgd_momentum});
}

}  // namespace

std::vector<optim::ParameterGroup> make_parameter_groups(const TrainOptions& options,
                                                         const models::Model& model) {
  const std::vector<FreezeRule> freeze_rules = parse_freeze_rules(*options.freeze);
  std::vector<optim::ParameterGroup> groups = apply_freeze_rules(
      optim::decay_groups(model.parameters(), *options.weight_decay, *options.decay_biases), freeze_rules);
  freeze_parameters(model, freeze_rules);
  const std::vector<RateRule> rate_rules = rate_rules_of(options, model, groups);
  if (std::holds_alternative<MuonOptions>(*options.optimizer))
    return groups;  // which divides the groups before the rules apply
  if (options.bias_lr) groups = apply_bias_rate(groups, *options.bias_lr / *options.lr);
  return apply_rate_rules(groups, rate_rules, *options.lr);
}

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainOptions& options, const models::Model& model,
                                                 std::vector<optim::ParameterGroup> groups) {
  return std::visit(
      [&](const auto& chosen) -> std::unique_ptr<optim::Optimizer> {
        using T = std::decay_t<decltype(chosen)>;
        if constexpr (std::is_same_v<T, MuonOptions>) {
          return make_muon(chosen, options, groups, rate_rules_of(options, model, groups));
        } else if constexpr (std::is_same_v<T, SgdOptions>) {
          return std::make_unique<optim::Sgd>(
              std::move(groups),
              optim::SgdSettings{.momentum = chosen.momentum, .nesterov = *chosen.nesterov});
        } else if constexpr (std::is_same_v<T, RmspropOptions>) {
          return std::make_unique<optim::Adam>(
              std::move(groups),
              optim::AdamSettings{
                  .beta1 = chosen.momentum, .beta2 = chosen.alpha, .epsilon = chosen.eps, .rms_prop = true});
        } else {
          return std::make_unique<optim::Adam>(
              std::move(groups), optim::AdamSettings{.beta1 = chosen.betas[0],
                                                     .beta2 = chosen.betas[1],
                                                     .epsilon = chosen.eps,
                                                     .decoupled = std::is_same_v<T, AdamWOptions>});
        }
      },
      *options.optimizer);
}

}  // namespace convoy

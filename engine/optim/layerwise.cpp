#include "convoy/engine/optim/layerwise.h"

#include <cmath>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::optim {
namespace {

/// Returns whether a parameter has a trust ratio.
bool adapts(const nn::NamedParameter& parameter) {
  return parameter.kind == nn::ParameterKind::filter || parameter.kind == nn::ParameterKind::weight;
}

}  // namespace

Lars::Lars(std::vector<ParameterGroup> groups, LarsSettings settings)
    : Optimizer(std::move(groups)), settings_(settings), momentum_(make_state()) {
  check(settings.momentum >= 0 && settings.momentum < 1, "lars: momentum {}, expected at least 0 and below 1",
        settings.momentum);
  check(std::isfinite(settings.trust_coefficient) && settings.trust_coefficient > 0,
        "lars: trust coefficient {}, expected above 0", settings.trust_coefficient);
}

std::vector<NamedState> Lars::state() const {
  std::vector<NamedState> all;
  append_state(all, "momentum", momentum_);
  return all;
}

void Lars::step_groups(const Indices& indices, const kernels::StepScalars& scalars) {
  std::vector<kernels::LarsGroup> groups;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    kernels::LarsGroup& group = groups.emplace_back();
    group.options = {.rate = groups_[g].rate,
                     .lr_scale = groups_[g].lr_scale,
                     .momentum = settings_.momentum,
                     .weight_decay = groups_[g].weight_decay,
                     .trust = settings_.trust_coefficient};
    for (const std::size_t i : indices[g]) {
      const nn::NamedParameter& parameter = groups_[g].parameters[i];
      group.slots.push_back({.parameter = parameter.variable.value().view(),
                             .gradient = parameter.variable.grad().view(),
                             .states = {state_view(parameter, momentum_[g][i])},
                             .low_precision_copy = low_precision_copy_of(parameter),
                             .adapts = adapts(parameter)});
    }
  }
  on(context().stream(), [&](auto& s) { kernels::lars_step(s, groups, scalars); });
}

Lamb::Lamb(std::vector<ParameterGroup> groups, LambSettings settings)
    : Optimizer(std::move(groups)), settings_(settings), first_(make_state()), second_(make_state()) {
  for (const double beta : {settings.beta1, settings.beta2})
    check(beta >= 0 && beta < 1, "lamb: beta {}, expected at least 0 and below 1", beta);
  check(std::isfinite(settings.epsilon) && settings.epsilon > 0, "lamb: epsilon {}, expected above 0",
        settings.epsilon);
}

std::vector<NamedState> Lamb::state() const {
  std::vector<NamedState> all;
  append_state(all, "first_moment", first_);
  append_state(all, "second_moment", second_);
  return all;
}

void Lamb::step_groups(const Indices& indices, const kernels::StepScalars& scalars) {
  std::vector<kernels::LambGroup> groups;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    kernels::LambGroup& group = groups.emplace_back();
    group.options = {.rate = groups_[g].rate,
                     .lr_scale = groups_[g].lr_scale,
                     .beta1 = settings_.beta1,
                     .beta2 = settings_.beta2,
                     .epsilon = settings_.epsilon,
                     .weight_decay = groups_[g].weight_decay};
    for (const std::size_t i : indices[g]) {
      const nn::NamedParameter& parameter = groups_[g].parameters[i];
      group.slots.push_back(
          {.parameter = parameter.variable.value().view(),
           .gradient = parameter.variable.grad().view(),
           .states = {state_view(parameter, first_[g][i]), state_view(parameter, second_[g][i])},
           .low_precision_copy = low_precision_copy_of(parameter),
           .adapts = adapts(parameter)});
    }
  }
  on(context().stream(), [&](auto& s) { kernels::lamb_step(s, groups, scalars); });
}

}  // namespace convoy::optim

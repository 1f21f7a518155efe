#include "convoy/engine/optim/layerwise.h"

#include <cmath>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::optim {
namespace {

/// Returns the groups of LARS or LAMB. make(indices) returns those of SGD or Adam. Biases and norms do not adapt.
template <class Group, class Make, class... Option>
std::vector<Group> layer_groups(const std::vector<ParameterGroup>& groups,
                                const std::vector<std::vector<std::size_t>>& indices, Make make,
                                Option... option) {
  std::vector<Group> all;
  for (const bool adapts : {true, false}) {
    auto some = indices;
    for (std::size_t g = 0; g < groups.size(); ++g)
      std::erase_if(some[g], [&](std::size_t i) {
        const nn::ParameterKind kind = groups[g].parameters[i].kind;
        return adapts != (kind == nn::ParameterKind::filter || kind == nn::ParameterKind::weight);
      });
    for (auto& group : make(some))
      all.push_back({std::move(group.slots), {group.options, option..., adapts}});
  }
  return all;
}

}  // namespace

Lars::Lars(std::vector<ParameterGroup> groups, LarsSettings settings)
    : Sgd("lars", std::move(groups), {.momentum = settings.momentum}), trust_(settings.trust_coefficient) {
  check(std::isfinite(trust_) && trust_ > 0, "lars: trust coefficient {}, expected above 0", trust_);
  if (momentum_.empty()) momentum_ = make_state();
}

void Lars::step_groups(const Indices& indices, const kernels::StepScalars& scalars) {
  const auto groups = layer_groups<kernels::LarsGroup>(
      groups_, indices, [&](const Indices& some) { return kernel_groups(some); }, trust_);
  on(context().stream(), [&](auto& s) { kernels::lars_step(s, groups, scalars); });
}

Lamb::Lamb(std::vector<ParameterGroup> groups, LambSettings settings)
    : Adam("lamb", std::move(groups),
           {.beta1 = settings.beta1, .beta2 = settings.beta2, .epsilon = settings.epsilon}) {}

void Lamb::step_groups(const Indices& indices, const kernels::StepScalars& scalars) {
  const auto groups = layer_groups<kernels::LambGroup>(
      groups_, indices, [&](const Indices& some) { return kernel_groups(some); });
  on(context().stream(), [&](auto& s) { kernels::lamb_step(s, groups, scalars); });
}

}  // namespace convoy::optim

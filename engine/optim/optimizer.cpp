#include "convoy/engine/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_integer.h"
#include "convoy/kernels/base/json_text.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"

namespace convoy::optim {
namespace {

std::vector<ParameterGroup> one_group(const std::vector<nn::NamedParameter>& parameters,
                                      double weight_decay) {
  return {ParameterGroup{.parameters = parameters, .weight_decay = weight_decay}};
}

void check_group_decay(std::string_view optimizer, double weight_decay) {
  check(weight_decay == 0,
        "{}: weight decay {} was given with parameter groups, which have their own; expected 0", optimizer,
        weight_decay);
}

}  // namespace

std::vector<ParameterGroup> decay_groups(const std::vector<nn::NamedParameter>& parameters,
                                         double weight_decay, bool decay_all) {
  ParameterGroup decaying{.parameters = {}, .weight_decay = weight_decay};
  ParameterGroup others;
  for (const nn::NamedParameter& parameter : parameters) {
    const bool decays = decay_all || parameter.kind == nn::ParameterKind::filter ||
                        parameter.kind == nn::ParameterKind::weight;
    (decays ? decaying : others).parameters.push_back(parameter);
  }
  std::vector<ParameterGroup> groups;
  for (ParameterGroup* group : {&decaying, &others})
    if (!group->parameters.empty()) groups.push_back(std::move(*group));
  return groups;
}

Optimizer::Optimizer(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {
  std::vector<Variable> seen;
  std::set<std::string_view> names;
  int rates = 1;
  for (const ParameterGroup& group : groups_) {
    check(std::isfinite(group.weight_decay) && group.weight_decay >= 0,
          "optimizer: weight decay {}, expected at least 0", group.weight_decay);
    check(std::isfinite(group.lr_scale) && group.lr_scale >= 0,
          "optimizer: learning-rate scale {}, expected at least 0", group.lr_scale);
    check(group.rate >= 0, "optimizer: index {} of a learning rate, expected at least 0", group.rate);
    rates = std::max(rates, group.rate + 1);
    for (const nn::NamedParameter& parameter : group.parameters) {
      check(names.insert(parameter.name).second,
            "optimizer: two parameters are named {}; expected unique names", parameter.name);
      for (const Variable& other : seen)
        check(!(other == parameter.variable),
              "optimizer: parameter {} was added twice, under different names", parameter.name);
      seen.push_back(parameter.variable);
    }
    own_.emplace_back(group.parameters.size(), -1);
  }
  check(!seen.empty(), "optimizer: no parameters");
  steps_ = Tensor::zeros({1}, DType::f64, context());
  lr_ = Tensor::zeros({rates}, DType::f64, context());
}

const DeviceContext& Optimizer::context() const {
  for (const ParameterGroup& group : groups_)
    if (!group.parameters.empty()) return group.parameters.front().variable.context();
  fail<UsageError>("optimizer: no parameters");
}

std::vector<ConstView> Optimizer::new_gradients(bool may_be_empty) const {
  std::vector<ConstView> gradients;
  for (const ParameterGroup& group : groups_)
    for (const nn::NamedParameter& parameter : group.parameters)
      if (parameter.variable.has_new_grad()) gradients.push_back(parameter.variable.grad().view());
  check(may_be_empty || !gradients.empty(),
        "optimizer {}: no parameter has a new gradient; call backward before step", name());
  return gradients;
}

Tensor Optimizer::norm_of(const std::vector<ConstView>& gradients, ProcessGroup* group) const {
  Tensor norm = Tensor::empty({1}, DType::f64, context());
  on(norm.stream(), [&](auto& s) { kernels::global_norm(s, gradients, norm.view()); });
  if (group == nullptr) return norm;
  const Tensor norms = Tensor::empty({group->size(), 1}, DType::f64, context());
  group->all_gather(norm, norms);
  const ConstView all = norms.view();
  on(norm.stream(), [&](auto& s) { kernels::global_norm(s, {&all, 1}, norm.view()); });
  return norm;
}

void Optimizer::step(double lr, const OptimizerStepOptions& options) {
  check(std::isfinite(lr) && lr >= 0, "optimizer {}: learning rate {}, expected at least 0", name(), lr);
  on(lr_.stream(), [&](auto& s) { kernels::fill(s, lr, lr_.view()); });
  step(lr_, options);
}

void Optimizer::step(const Tensor& lr, const OptimizerStepOptions& options) {
  check(steps_.device() == context().device(),
        "optimizer {}: the model has moved from {} to {}; build the optimizer afterwards", name(),
        steps_.context().name(), context().name());
  check(lr.defined() && lr.dtype() == DType::f64 && lr.shape().rank() == 1 && lr.numel() >= rates() &&
            lr.device() == context().device(),
        "optimizer {}: learning rate is {} {} on {}, expected f64 [{}] or more on {}", name(),
        lr.defined() ? to_string(lr.dtype()) : "undefined", lr.shape().text(),
        lr.defined() ? lr.context().name() : "none", rates(), context().name());
  check(!options.clip_norm || *options.clip_norm > 0, "optimizer {}: clip norm {}, expected above 0", name(),
        options.clip_norm.value_or(0));
  check(options.scaler == nullptr || options.scaler->seed().device() == context().device(),
        "optimizer {}: the loss scaler is on {}, expected {}", name(),
        options.scaler == nullptr ? "no device" : options.scaler->seed().context().name(), context().name());
  // A rank that holds a shard of the parameters may have no gradients.
  const std::vector<ConstView> gradients = new_gradients(options.process_group != nullptr);

  if (depends_on_steps()) count_missing();
  kernels::StepScalars scalars{.lr = lr.view(), .grad_scale = {}, .skip = {}, .steps = steps_.view()};
  if (own_steps_.defined()) scalars.own_steps = own_steps_.view();
  if (options.scaler != nullptr) {
    const Tensor& found = options.scaler->find_non_finite(gradients);
    if (options.process_group != nullptr) options.process_group->all_reduce(found);
    scalars.skip = found.view();
  }
  Tensor coefficient;  // must live until the kernels that read it are enqueued
  if (options.clip_norm || options.scaler != nullptr) {
    coefficient = gradient_coefficient(gradients, options);
    scalars.grad_scale = coefficient.view();
  }
  Indices indices(groups_.size());
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (std::size_t i = 0; i < groups_[g].parameters.size(); ++i)
      if (groups_[g].parameters[i].variable.has_new_grad()) indices[g].push_back(i);
  step_groups(indices, scalars);
  if (options.scaler != nullptr) options.scaler->update();
  for (const ParameterGroup& group : groups_)
    for (const nn::NamedParameter& parameter : group.parameters) {
      parameter.variable.consume_grad();
      // With a scaler, first_non_finite() may still need the gradients to name the one that overflowed.
      if (options.scaler == nullptr) parameter.variable.release_grad();
    }
}

Tensor Optimizer::gradient_coefficient(const std::vector<ConstView>& gradients,
                                       const OptimizerStepOptions& options) const {
  Tensor norm;
  if (options.clip_norm) norm = norm_of(gradients, options.process_group);
  const Tensor coefficient = Tensor::empty({1}, DType::f64, context());
  on(coefficient.stream(), [&](auto& s) {
    kernels::clip_coefficient(
        s, norm.defined() ? ConstView(norm.view()) : ConstView(), options.clip_norm.value_or(0),
        options.scaler != nullptr ? ConstView(options.scaler->seed().view()) : ConstView(),
        coefficient.view());
  });
  return coefficient;
}

std::int64_t Optimizer::steps() const {
  return std::llround(steps_.item());  // blocks until the device has computed it
}

StepsByName Optimizer::own_steps() const {
  StepsByName own;
  if (!own_steps_.defined()) return own;
  const std::int64_t all = steps();
  const std::vector<double> counts = own_steps_.to_vector<double>();
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (std::size_t i = 0; i < own_[g].size(); ++i) {
      if (own_[g][i] < 0) continue;
      const std::int64_t count = std::llround(counts[static_cast<std::size_t>(own_[g][i])]);
      if (count != all) own[groups_[g].parameters[i].name] = count;
    }
  return own;
}

void Optimizer::set_steps(std::int64_t steps, const StepsByName& own) {
  on(steps_.stream(), [&](auto& s) { kernels::fill(s, static_cast<double>(steps), steps_.view()); });
  // A parameter that has a number of its own keeps it, for graphs that were captured with it.
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (std::size_t i = 0; i < own_[g].size(); ++i)
      if (const auto found = own.find(groups_[g].parameters[i].name); found != own.end() || own_[g][i] >= 0)
        set_own_steps(g, i, found != own.end() ? found->second : steps);
}

void Optimizer::set_own_steps(std::size_t group, std::size_t parameter, std::int64_t steps) {
  if (!own_steps_.defined()) {
    std::size_t parameters = 0;
    for (const ParameterGroup& each : groups_) parameters += each.parameters.size();
    own_steps_ = Tensor::zeros({static_cast<std::int64_t>(parameters)}, DType::f64, context());
  }
  int& index = own_[group][parameter];
  if (index < 0) index = owners_++;
  const Tensor count = own_steps_.slice(index, {1});
  on(count.stream(), [&](auto& s) { kernels::fill(s, static_cast<double>(steps), count.view()); });
}

void Optimizer::count_missing() {
  std::optional<std::int64_t> before;  // the steps before this one
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (std::size_t i = 0; i < own_[g].size(); ++i) {
      if (own_[g][i] >= 0 || groups_[g].parameters[i].variable.has_new_grad()) continue;
      if (!before) before = steps();  // by the host, so that no graph captures it
      set_own_steps(g, i, *before);
    }
}

std::vector<std::vector<Tensor>> Optimizer::add_state(const std::string& kind, std::size_t groups) {
  std::vector<std::vector<Tensor>>& state = states_[kind];
  for (const ParameterGroup& group : std::span(groups_).first(groups)) {
    std::vector<Tensor>& tensors = state.emplace_back();
    for (const nn::NamedParameter& parameter : group.parameters)
      tensors.push_back(Tensor::zeros(parameter.variable.shape(), parameter.variable.dtype(),
                                      parameter.variable.context()));
  }
  return state;
}

std::vector<NamedState> Optimizer::state() const {
  std::vector<NamedState> all;
  for (const auto& [kind, state] : states_)
    for (std::size_t g = 0; g < state.size(); ++g)
      for (std::size_t i = 0; i < state[g].size(); ++i) {
        const nn::NamedParameter& parameter = groups_[g].parameters[i];
        all.push_back({fmt::format("{}/{}", kind, parameter.name), state[g][i], parameter.kind});
      }
  return all;
}

View Optimizer::state_view(const nn::NamedParameter& parameter, const Tensor& state) {
  const Tensor& value = parameter.variable.value();
  check(state.device() == value.device() && state.dtype() == value.dtype(),
        "optimizer: {} is {} on {}, its state {} on {}; build the optimizer after moving the model",
        parameter.name, to_string(value.dtype()), value.context().name(), to_string(state.dtype()),
        state.context().name());
  return state.view();
}

View Optimizer::low_precision_copy_of(const nn::NamedParameter& parameter) {
  const Tensor& copy = parameter.variable.low_precision_copy();
  return copy.defined() ? copy.view() : View{};
}

void Optimizer::step_by_sgd(std::size_t first, const Indices& indices,
                            const std::vector<std::vector<Tensor>>& momentum, const SgdSettings& settings,
                            const kernels::StepScalars& scalars) const {
  std::vector<kernels::SgdGroup> groups;
  for (std::size_t g = first; g < groups_.size(); ++g) {
    kernels::SgdGroup& group = groups.emplace_back();
    group.options = {.rate = groups_[g].rate,
                     .lr_scale = groups_[g].lr_scale,
                     .momentum = settings.momentum,
                     .weight_decay = groups_[g].weight_decay,
                     .nesterov = settings.nesterov};
    for (const std::size_t i : indices[g]) {
      const nn::NamedParameter& parameter = groups_[g].parameters[i];
      group.slots.push_back(
          {.parameter = parameter.variable.value().view(),
           .gradient = parameter.variable.grad().view(),
           .momentum = settings.momentum > 0 ? state_view(parameter, momentum[g][i]) : View{},
           .low_precision_copy = low_precision_copy_of(parameter)});
    }
  }
  on(context().stream(), [&](auto& s) { kernels::sgd_step(s, groups, scalars); });
}

std::string to_text(const StepsByName& steps) { return json_text(nlohmann::json(steps)); }

StepsByName parse_steps(const std::string& text) {
  // Without exceptions of the parser, and no deeper than an object of numbers.
  const auto parsed = nlohmann::json::parse(
      text, [](int depth, nlohmann::json::parse_event_t, const auto&) { return depth <= 1; }, false);
  if (!parsed.is_object())
    fail<DataError>("steps of parameters: found {}, expected a JSON object",
                    json_text(nlohmann::json(text)).substr(0, 40));
  StepsByName steps;
  for (const auto& [name, count] : parsed.items()) steps[name] = JsonInteger(count);
  return steps;
}

OptimizerState state_of(const Optimizer& optimizer) {
  return {.name = optimizer.name(),
          .steps = optimizer.steps(),
          .tensors = optimizer.state(),
          .own_steps = optimizer.own_steps()};
}

Sgd::Sgd(const std::vector<nn::NamedParameter>& parameters, SgdSettings settings)
    : Sgd(one_group(parameters, settings.weight_decay),
          {.momentum = settings.momentum, .nesterov = settings.nesterov}) {}

Sgd::Sgd(std::vector<ParameterGroup> groups, SgdSettings settings)
    : Optimizer(std::move(groups)), settings_(settings) {
  check_group_decay("sgd", settings.weight_decay);
  check(settings.momentum >= 0 && settings.momentum < 1, "sgd: momentum {}, expected at least 0 and below 1",
        settings.momentum);
  check(!settings.nesterov || settings.momentum > 0, "sgd: nesterov needs a momentum above 0");
  if (settings_.momentum > 0) momentum_ = add_state("momentum", groups_.size());
}

void Sgd::step_groups(const Indices& indices, const kernels::StepScalars& scalars) {
  step_by_sgd(0, indices, momentum_, settings_, scalars);
}

Adam::Adam(const std::vector<nn::NamedParameter>& parameters, AdamSettings settings)
    : Adam(one_group(parameters, settings.weight_decay), {.beta1 = settings.beta1,
                                                          .beta2 = settings.beta2,
                                                          .epsilon = settings.epsilon,
                                                          .decoupled = settings.decoupled,
                                                          .rms_prop = settings.rms_prop}) {}

Adam::Adam(std::vector<ParameterGroup> groups, AdamSettings settings)
    : Optimizer(std::move(groups)), settings_(settings) {
  check_group_decay("adam", settings.weight_decay);
  for (const double beta : {settings.beta1, settings.beta2})
    check(beta >= 0 && beta < 1, "adam: beta {}, expected at least 0 and below 1", beta);
  check(!settings.rms_prop || !settings.decoupled,
        "adam: found rms_prop and decoupled, expected one of them");
  check(std::isfinite(settings.epsilon) && settings.epsilon > 0, "adam: epsilon {}, expected above 0",
        settings.epsilon);
  first_ = add_state("first_moment", groups_.size());
  second_ = add_state("second_moment", groups_.size());
}

void Adam::step_groups(const Indices& indices, const kernels::StepScalars& scalars) {
  std::vector<kernels::AdamGroup> groups(groups_.size());
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    kernels::AdamOptions options{.rate = groups_[g].rate,
                                 .lr_scale = groups_[g].lr_scale,
                                 .beta1 = settings_.beta1,
                                 .beta2 = settings_.beta2,
                                 .epsilon = settings_.epsilon,
                                 .weight_decay = groups_[g].weight_decay,
                                 .decoupled = settings_.decoupled,
                                 .rms_prop = settings_.rms_prop};
    groups[g].options = options;
    for (const std::size_t i : indices[g]) {
      const nn::NamedParameter& parameter = groups_[g].parameters[i];
      options.own_steps = own_index(g, i);
      kernels::AdamGroup& group =
          options.own_steps < 0 ? groups[g] : groups.emplace_back(kernels::AdamGroup{{}, options});
      group.slots.push_back({.parameter = parameter.variable.value().view(),
                             .gradient = parameter.variable.grad().view(),
                             .first_moment = state_view(parameter, first_[g][i]),
                             .second_moment = state_view(parameter, second_[g][i]),
                             .low_precision_copy = low_precision_copy_of(parameter)});
    }
  }
  // A parameter with its own number of steps is a group.
  on(context().stream(), [&](auto& s) { kernels::adam_step(s, groups, scalars); });
}

}  // namespace convoy::optim

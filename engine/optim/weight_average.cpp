#include "convoy/engine/optim/weight_average.h"

#include <algorithm>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/optimizer_step.h"

namespace convoy::optim {

double ema_decay(double decay, std::int64_t step) {
  const auto steps = static_cast<double>(step);
  return std::min(decay, (1 + steps) / (10 + steps));
}

WeightAverage::WeightAverage(nn::Module& model) : model_(model) {
  for (const nn::NamedParameter& parameter : model.parameters())
    weights_.push_back({parameter.name, parameter.variable.value(), parameter.kind});
  parameters_ = weights_.size();
  for (const nn::NamedBuffer& buffer : model.buffers())
    weights_.push_back({buffer.name, buffer.tensor, buffer.kind});
  check(!weights_.empty(), "average of weights: the model has no parameters");
  for (const auto& [name, tensor, kind] : weights_) {
    check(tensor.dtype() == DType::f32 || tensor.dtype() == DType::f64,
          "average of weights: {} is {}, expected f32 or f64", name, to_string(tensor.dtype()));
    average_.push_back(tensor.clone());
  }
  const DeviceContext& context = average_.front().context();
  weight_ = Tensor::zeros({1}, DType::f64, context);
  minus_one_ = Tensor::full({1}, -1, DType::f64, context);
  steps_ = Tensor::zeros({1}, DType::f64, context);
}

void WeightAverage::reset() { copy_weights(0); }

void WeightAverage::reset_buffers() { copy_weights(parameters_); }

void WeightAverage::copy_weights(std::size_t first) {
  std::vector<kernels::Assignment> copies;
  for (std::size_t i = first; i < weights_.size(); ++i)
    copies.push_back({.to = average_[i].view(), .from = weights_[i].tensor.view()});
  if (!copies.empty()) on(weight_.stream(), [&](auto& s) { kernels::assign(s, copies); });
}

// A step of SGD on the average a, with the "gradient" -w and a weight decay of 1, adds a to it:
//   a -= weight (a - w).
void WeightAverage::update(double weight) {
  check(weight >= 0 && weight <= 1, "average of weights: weight {}, expected 0 to 1", weight);
  std::vector<kernels::SgdGroup> groups(1);
  groups[0].options.weight_decay = 1;
  for (std::size_t i = 0; i < weights_.size(); ++i)
    groups[0].slots.push_back({.parameter = average_[i].view(),
                               .gradient = weights_[i].tensor.view(),
                               .momentum = {},
                               .low_precision_copy = {}});
  const kernels::StepScalars scalars{
      .lr = weight_.view(), .grad_scale = minus_one_.view(), .skip = {}, .steps = steps_.view()};
  on(weight_.stream(), [&](auto& s) {
    kernels::fill(s, weight, weight_.view());
    kernels::sgd_step(s, groups, scalars);
  });
}

void WeightAverage::write_back() {
  std::vector<kernels::Assignment> copies;
  for (std::size_t i = 0; i < weights_.size(); ++i)
    copies.push_back({.to = weights_[i].tensor.view(), .from = average_[i].view()});
  on(weight_.stream(), [&](auto& s) { kernels::assign(s, copies); });
  model_.refresh_low_precision_copies();
}

void WeightAverage::swap() {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const Tensor average = average_[i].clone();
    average_[i].copy_from(weights_[i].tensor);
    weights_[i].tensor.copy_from(average);
  }
  model_.refresh_low_precision_copies();
}

std::vector<NamedState> WeightAverage::state(std::string_view kind) const {
  std::vector<NamedState> all;
  for (std::size_t i = 0; i < weights_.size(); ++i)
    all.push_back({fmt::format("{}/{}", kind, weights_[i].name), average_[i], weights_[i].kind});
  return all;
}

}  // namespace convoy::optim

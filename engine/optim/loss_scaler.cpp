#include "convoy/engine/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"

namespace convoy::optim {
namespace {

void set(const Tensor& number, double value) {
  on(number.stream(), [&](auto& s) { kernels::fill(s, value, number.view()); });
}

}  // namespace

LossScaleSettings LossScaleSettings::fixed(double scale) {
  return {.initial = scale, .options = {.growth = 1, .backoff = 1, .minimum = scale, .maximum = scale}};
}

LossScaler::LossScaler(const DeviceContext& device, DType loss_dtype, const LossScaleSettings& settings)
    : options_(settings.options) {
  check(loss_dtype == DType::f32 || loss_dtype == DType::f64,
        "loss scaler: the loss is {}, expected f32 or f64", to_string(loss_dtype));
  check(options_.minimum > 0 && options_.minimum <= settings.initial &&
            settings.initial <= options_.maximum && std::isfinite(options_.maximum),
        "loss scaler: initial scale {}, minimum {}, maximum {}; expected 0 < minimum <= initial <= maximum",
        settings.initial, options_.minimum, options_.maximum);
  check(options_.growth >= 1 && std::isfinite(options_.growth),
        "loss scaler: growth factor {}, expected at least 1", options_.growth);
  check(options_.backoff > 0 && options_.backoff <= 1,
        "loss scaler: backoff factor {}, expected more than 0 and at most 1", options_.backoff);
  check(options_.interval >= 1, "loss scaler: growth interval of {} steps, expected at least 1",
        options_.interval);
  scale_ = Tensor::full({1}, settings.initial, loss_dtype, device);
  for (Tensor* const number : {&good_steps_, &skipped_, &failed_, &non_finite_})
    *number = Tensor::zeros({1}, DType::i32, device);
}

const Tensor& LossScaler::find_non_finite(std::span<const ConstView> gradients) const {
  on(scale_.stream(), [&](auto& s) { kernels::count_non_finite(s, gradients, non_finite_.view()); });
  return non_finite_;
}

void LossScaler::update() const {
  on(scale_.stream(), [&](auto& s) { kernels::update_loss_scale(s, non_finite_.view(), view(), options_); });
}

kernels::LossScaleView LossScaler::view() const {
  return {.scale = scale_.view(),
          .good_steps = good_steps_.view(),
          .skipped = skipped_.view(),
          .failed = failed_.view()};
}

LossScaler::Reading::Reading(const LossScaler& scaler)
    : scale_(scaler.scale_),
      good_steps_(scaler.good_steps_),
      skipped_(scaler.skipped_),
      failed_(scaler.failed_) {}

LossScaler::State LossScaler::Reading::state() const {
  return {.scale = scale_.values()[0],
          .good_steps = std::llround(good_steps_.values()[0]),
          .skipped = std::llround(skipped_.values()[0]),
          .failed = failed_.values()[0] != 0};
}

void LossScaler::restore(const State& state) const {
  check(std::isfinite(state.scale) && state.scale > 0 && state.good_steps >= 0 && state.skipped >= 0,
        "loss scaler: cannot restore scale {} with {} good and {} skipped steps", state.scale,
        state.good_steps, state.skipped);
  set(scale_, std::clamp(state.scale, options_.minimum, options_.maximum));
  set(good_steps_, static_cast<double>(state.good_steps));
  set(skipped_, static_cast<double>(state.skipped));
  set(failed_, state.failed ? 1 : 0);
}

std::string first_non_finite(const std::vector<nn::NamedParameter>& parameters) {
  if (parameters.empty()) return "";
  const auto size = static_cast<std::int64_t>(parameters.size());
  const Tensor counts = Tensor::zeros({size}, DType::i32, parameters.front().variable.context());
  for (std::int64_t i = 0; i < size; ++i) {
    const Tensor& gradient = parameters[static_cast<std::size_t>(i)].variable.grad();
    if (!gradient.defined()) continue;
    const ConstView view = gradient.view();
    on(counts.stream(), [&](auto& s) {
      kernels::count_non_finite(s, {&view, 1}, counts.slice(i, {1}).view());
    });
  }
  const std::vector<std::int32_t> found = counts.to_vector<std::int32_t>();  // blocks
  const auto first = std::ranges::find_if(found, [](std::int32_t count) { return count != 0; });
  return first == found.end() ? "" : parameters[static_cast<std::size_t>(first - found.begin())].name;
}

}  // namespace convoy::optim

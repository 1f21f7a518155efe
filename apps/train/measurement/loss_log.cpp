#include "convoy/apps/train/measurement/loss_log.h"

#include <cmath>
#include <utility>

#include "convoy/comm/parallel/broadcast.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"

namespace convoy {

LossesInFlight::LossesInFlight(std::vector<Step> steps, const Tensor& values)
    : steps_(std::move(steps)), values_(steps_.empty() ? nullptr : std::make_unique<Readback>(values)) {}

std::vector<training::StepResult> LossesInFlight::results() const {
  std::vector<training::StepResult> results;
  if (!values_) return results;
  const std::vector<double> parts = values_->values();
  auto part = parts.begin();
  for (const Step& step : steps_) {
    double loss = 0, correct = 0;
    for (int k = 0; k < step.parts; ++k) {
      loss += *part++;
      correct += *part++;
    }
    training::StepResult& result = results.emplace_back(step.result);
    result.loss = loss;
    if (!std::isnan(correct)) result.correct = std::llround(correct);
  }
  return results;
}

LossLog::LossLog(const DeviceContext& device, DType dtype, std::int64_t capacity, dist::Communicator* comm)
    : comm_(comm), values_(Tensor::empty({2 * capacity}, dtype, device)) {}

void LossLog::add(const training::StepResult& step, const std::vector<MicroBatchResult>& parts) {
  check(!full(parts.size()), "loss log: no room for step {} among {} losses", step.step, values_.size(0) / 2);
  std::vector<kernels::Assignment> copies;
  const auto place = [&] {
    ++next_;
    return values_.rows(next_ - 1, next_).view();
  };
  for (const MicroBatchResult& part : parts) {
    copies.push_back({.to = place(), .from = part.loss.view()});
    if (part.correct.defined())
      copies.push_back({.to = place(), .from = part.correct.view()});
    else
      copies.push_back({.to = place(), .value = NAN});
  }
  on(values_.stream(), [&](auto& s) { kernels::assign(s, copies); });
  steps_.push_back({step, static_cast<int>(parts.size())});
}

LossesInFlight LossLog::take() {
  if (comm_ != nullptr && next_ > 0) dist::all_reduce_in_order(*comm_, values_.rows(0, next_));
  LossesInFlight taken(std::exchange(steps_, {}), values_.rows(0, next_));
  next_ = 0;
  return taken;
}

}  // namespace convoy

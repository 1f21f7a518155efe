#include "convoy/engine/training/loss_monitor.h"

#include <cmath>
#include <cstdio>

#include "convoy/kernels/base/check.h"

namespace convoy::training {

void EpochTotals::add(const StepResult& step) {
  samples += step.samples;
  loss += step.loss * static_cast<double>(step.samples);
  if (!step.correct) return;
  counted += step.samples;
  correct += *step.correct;
}

std::optional<double> EpochTotals::accuracy() const {
  if (counted == 0) return std::nullopt;
  return static_cast<double>(correct) / static_cast<double>(counted);
}

std::string LossMonitor::problem_of(const StepResult& result) const {
  if (std::isfinite(result.loss)) return "";
  return fmt::format(
      "the loss of step {} is {}{}", result.step,
      std::isnan(result.loss) ? std::fabs(result.loss) : result.loss,  // NaN may have a sign
      result.step > 1 ? fmt::format(", after {} at step {}", state_.last, result.step - 1) : "");
}

void LossMonitor::on_step(const StepResult& result) {
  if (const std::string problem = problem_of(result); !problem.empty())
    fail<NumericError>("{}; lower the learning rate or clip the gradients", problem);
  state_.step = result.step;
  state_.epoch = result.epoch;
  state_.last = result.loss;
  average_.add(result.loss);
  state_.totals.add(result);
  if (every_ == 0 || result.step % every_ != 0) return;
  fmt::print("step {}: loss {:.4f}, average {:.4f}\n", result.step, result.loss, average());
  std::fflush(stdout);
}

EpochResult LossMonitor::end_epoch() {
  const EpochTotals totals = std::exchange(state_.totals, {});
  return {.epoch = state_.epoch,
          .step = state_.step,
          .samples = totals.samples,
          .loss = totals.mean_loss(),
          .accuracy = totals.accuracy()};
}

LossMonitor::State LossMonitor::state() const {
  State state = state_;
  state.average = average_.state();
  return state;
}

void LossMonitor::restore(const State& state) {
  state_ = state;
  average_.restore(state.average);
}

}  // namespace convoy::training

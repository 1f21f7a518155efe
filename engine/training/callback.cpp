#include "convoy/engine/training/callback.h"

#include <cmath>
#include <cstdio>

#include "convoy/kernels/base/check.h"

namespace convoy::training {

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
  state_.totals.samples += result.samples;
  state_.totals.loss += result.loss * static_cast<double>(result.samples);
  if (result.correct) {
    state_.totals.counted += result.samples;
    state_.totals.correct += *result.correct;
  }
  if (every_ == 0 || result.step % every_ != 0) return;
  fmt::print("step {}: loss {:.4f}, average {:.4f}\n", result.step, result.loss, average());
  std::fflush(stdout);
}

EpochResult LossMonitor::end_epoch() {
  const EpochTotals totals = std::exchange(state_.totals, {});
  EpochResult result{.epoch = state_.epoch,
                     .step = state_.step,
                     .samples = totals.samples,
                     .loss = totals.loss / static_cast<double>(totals.samples)};
  if (totals.counted > 0)
    result.accuracy = static_cast<double>(totals.correct) / static_cast<double>(totals.counted);
  return result;
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

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

void TimeMonitor::on_step(const StepResult& result) {
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> time = now - std::exchange(begin_, now);
  for (StepTimes* const times : {&total_, &epoch_}) {
    ++times->steps;
    times->samples += result.samples;
    times->seconds += time.count();
  }
}

void TimeMonitor::on_epoch(const EpochResult& result) {
  const StepTimes epoch = std::exchange(epoch_, {});
  if (!prints_) return;
  fmt::print("epoch {}: {:.2f} s, {:.2f} ms per step, {:.0f} samples/s\n", result.epoch + 1, epoch.seconds,
             epoch.step_ms(), epoch.samples_per_second());
  std::fflush(stdout);
}

EarlyStopping::EarlyStopping(EarlyStoppingOptions options) : options_(options) {
  check(options_.patience >= 0, "early stopping: found a patience of {}, expected at least 0",
        options_.patience);
  check(options_.min_delta >= 0, "early stopping: found a minimum difference of {}, expected at least 0",
        options_.min_delta);
}

void EarlyStopping::on_evaluation(const EvaluationResult& result) {
  const auto is_better = [&](const EvaluationResult& best) {
    return options_.metric == Metric::accuracy ? result.accuracy > best.accuracy + options_.min_delta
                                               : result.loss < best.loss - options_.min_delta;
  };
  const bool is_best = result.loss <= options_.max_loss && (!state_.best || is_better(*state_.best));
  if (is_best) state_.best = result;
  state_.evaluations_since_best = is_best ? 0 : state_.evaluations_since_best + 1;
}

bool EarlyStopping::should_stop() const {
  return options_.patience > 0 && state_.evaluations_since_best >= options_.patience;
}

ReduceOnPlateau::ReduceOnPlateau(double rate, PlateauOptions options)
    : options_(options), state_({.first = rate, .rate = rate}) {
  check(options_.factor > 0 && options_.factor < 1,
        "plateau: found a factor of {}, expected more than 0 and less than 1", options_.factor);
  check(options_.patience >= 0, "plateau: found a patience of {}, expected at least 0", options_.patience);
  check(options_.threshold >= 0 && options_.threshold < 1,
        "plateau: found a threshold of {}, expected at least 0 and less than 1", options_.threshold);
  check(options_.minimum >= 0 && options_.minimum <= rate,
        "plateau: found a minimum of {}, expected at least 0 and at most the rate, {}", options_.minimum,
        rate);
}

void ReduceOnPlateau::add(double loss) {
  constexpr double kMinChange = 1e-8;  // as in PyTorch: smaller changes are left out
  if (loss < state_.best.value_or(std::numeric_limits<double>::infinity()) * (1 - options_.threshold)) {
    state_.best = loss;
    state_.bad = 0;
  } else {
    ++state_.bad;
  }
  if (state_.bad <= options_.patience) return;
  const double reduced = std::max(state_.rate * options_.factor, options_.minimum);
  if (state_.rate - reduced > kMinChange) state_.rate = reduced;
  state_.bad = 0;
}

void ReduceOnPlateau::restore(const State& state) {
  const double first = std::exchange(state_, state).first;
  if (first == state.first) return;
  state_.first = first;
  state_.rate = std::max(first * (state.rate / state.first), options_.minimum);
}

ModelCheckpoint::ModelCheckpoint(io::CheckpointDirectory& directory, const nn::Module& model,
                                 const optim::Optimizer& optimizer, ModelCheckpointOptions options)
    : ModelCheckpoint(
          [&directory, &model, &optimizer, name = options.model_name](std::int64_t step, bool is_best) {
            io::Manifest manifest;
            manifest.step = step;
            manifest.model = name;
            directory.save(model, optimizer, manifest, is_best);
          },
          options) {}

ModelCheckpoint::ModelCheckpoint(Save save, ModelCheckpointOptions options)
    : save_(std::move(save)), options_(std::move(options)), best_({.metric = options_.metric}) {
  check(options_.every_steps >= 0, "checkpoints: found an interval of {} steps, expected at least 0",
        options_.every_steps);
}

void ModelCheckpoint::on_step(const StepResult& result) {
  if (options_.every_steps > 0 && is_due({.step = result.step})) save(result.step);
}

void ModelCheckpoint::on_epoch(const EpochResult& result) {
  if (is_due({.step = result.step, .ends_epoch = true})) save(result.step);
}

void ModelCheckpoint::on_evaluation(const EvaluationResult& result) {
  best_.on_evaluation(result);
  set_best(best_.is_best());
  if (best_unsaved_) save(result.step);
}

bool ModelCheckpoint::is_due(const Position& position) const {
  if (best_unsaved_) return true;
  if (saved_step_ == position.step) return false;
  if (position.ends_training) return true;
  if (position.step == 0) return false;
  return options_.every_steps > 0 ? position.step % options_.every_steps == 0 : position.ends_epoch;
}

void ModelCheckpoint::save(std::int64_t step) {
  save_(step, best_unsaved_);
  previous_saved_step_ = std::exchange(saved_step_, step);
  best_unsaved_ = false;
}

}  // namespace convoy::training

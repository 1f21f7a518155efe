// LossMonitor: the losses of a training and of its epochs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "convoy/engine/optim/loss_average.h"
#include "convoy/engine/training/callback.h"

namespace convoy::training {

/// Sums over the samples of an epoch so far.
struct EpochTotals {
  std::int64_t samples = 0;  // of all steps
  double loss = 0;           // sum over all samples
  std::int64_t counted = 0;  // samples of the steps that have counted `correct`
  std::int64_t correct = 0;  // samples that were classified correctly

  /// Adds the result of a step.
  void add(const StepResult& step);
  /// Returns the mean loss of the samples; NaN without samples.
  double mean_loss() const { return loss / static_cast<double>(samples); }
  /// Returns the fraction of samples that were classified correctly; nullopt if no step has counted them.
  std::optional<double> accuracy() const;
};

/// Averages the losses of the steps and of each epoch, and ends the training if a loss is not finite.
class LossMonitor final : public Callback {
 public:
  /// The state for a checkpoint. After restore(), all results have the same bits as without the interruption.
  struct State {
    std::int64_t step = 0;              // the latest step
    std::int64_t epoch = 0;             // its epoch
    double last = 0;                    // its loss
    optim::LossAverage::State average;  // the moving average
    EpochTotals totals;                 // of the epoch in progress
  };

  /// Prints a line every `every` steps to stdout; 0: none.
  explicit LossMonitor(std::int64_t every = 0) : every_(every) {}

  /// Adds the result of a step. Throws NumericError if the loss is not finite.
  void on_step(const StepResult& result) override;
  /// Returns what is wrong with the result of the next step: text if its loss is not finite, else an empty string.
  std::string problem_of(const StepResult& result) const;

  /// Returns the loss of the latest step; 0 before the first one.
  double last() const { return state_.last; }
  /// Returns the bias-corrected moving average of the losses; NaN before the first step.
  double average() const { return average_.value(); }
  /// Returns the result of the epoch so far, and begins the next one. Its loss is NaN if it had no step.
  EpochResult end_epoch();

  /// Returns the state for a checkpoint.
  State state() const;
  /// Continues from a state.
  void restore(const State& state);

 private:
  std::int64_t every_;
  State state_;  // without the moving average
  optim::LossAverage average_;
};

}  // namespace convoy::training

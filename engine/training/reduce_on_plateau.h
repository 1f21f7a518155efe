// ReduceOnPlateau: a learning rate that falls when the loss does not.
#pragma once

#include <cstdint>
#include <optional>

#include "convoy/engine/training/callback.h"

namespace convoy::training {

/// Options of ReduceOnPlateau. The defaults are PyTorch's.
struct PlateauOptions {
  double factor = 0.1;         // of the rate at each reduction; more than 0 and less than 1
  std::int64_t patience = 10;  // losses in a row that are no better, which do not reduce the rate yet
  double minimum = 0;          // of the rate
  double threshold = 1e-4;     // a loss is better if it is less than the best one times 1 - threshold
};

/// Multiplies the learning rate by `factor` after more than `patience` losses in a row that are no better
/// than the best one, as PyTorch's ReduceLROnPlateau. As a callback, it follows the losses of evaluations; a
/// caller that has none calls add() with other losses, such as those of epochs.
class ReduceOnPlateau final : public Callback {
 public:
  /// The state for a checkpoint.
  struct State {
    double first = 0;            // the rate of the constructor
    double rate = 0;             // the present rate
    std::optional<double> best;  // the best loss
    std::int64_t bad = 0;        // losses since the best one, or since the last reduction
  };

  /// Begins with `rate`. Throws UsageError for invalid options, and for a rate that is less than the minimum.
  explicit ReduceOnPlateau(double rate, PlateauOptions options = {});

  void on_evaluation(const EvaluationResult& result) override { add(result.loss); }
  /// Adds a loss. NaN is no better than any other.
  void add(double loss);
  /// Returns the rate of the next step.
  double rate() const { return state_.rate; }

  /// Returns the state for a checkpoint.
  const State& state() const { return state_; }
  /// Continues from a state. If that began with another rate, the rate is reduced in the same proportion.
  void restore(const State& state);

 private:
  PlateauOptions options_;
  State state_;
};

}  // namespace convoy::training

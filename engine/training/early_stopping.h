// EarlyStopping: finds the best evaluation, and ends a training that gets no better.
#pragma once

#include <cstdint>
#include <optional>

#include "convoy/engine/training/callback.h"

namespace convoy::training {

/// What of an evaluation is compared.
enum class Metric { accuracy, loss };

/// Options of EarlyStopping.
struct EarlyStoppingOptions {
  std::int64_t patience = 0;  // evaluations without a better one after which the training ends; 0: never
  Metric metric = Metric::accuracy;  // a higher accuracy or a lower loss is better
  double min_delta = 0;              // by how much more than this an evaluation must be better
};

/// Finds the best evaluation, and asks for the end once it is `patience` evaluations old. An evaluation that
/// equals the best one is not better, and neither is NaN.
class EarlyStopping final : public Callback {
 public:
  /// The state for a checkpoint.
  struct State {
    std::optional<EvaluationResult> best;     // the best evaluation
    std::int64_t evaluations_since_best = 0;  // later ones
  };

  /// Throws UsageError if an option is negative.
  explicit EarlyStopping(EarlyStoppingOptions options = {});

  void on_evaluation(const EvaluationResult& result) override;
  bool should_stop() const override;
  /// Returns whether the latest evaluation is the best one.
  bool is_best() const { return state_.best.has_value() && state_.evaluations_since_best == 0; }

  /// Returns the best evaluation, and the number of later ones.
  const State& state() const { return state_; }
  /// Continues from a state.
  void restore(const State& state) { state_ = state; }

 private:
  EarlyStoppingOptions options_;
  State state_;
};

}  // namespace convoy::training

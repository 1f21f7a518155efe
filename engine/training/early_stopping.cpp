#include "convoy/engine/training/early_stopping.h"

#include "convoy/kernels/base/check.h"

namespace convoy::training {

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
  const bool is_best = !state_.best || is_better(*state_.best);
  if (is_best) state_.best = result;
  state_.evaluations_since_best = is_best ? 0 : state_.evaluations_since_best + 1;
}

bool EarlyStopping::should_stop() const {
  return options_.patience > 0 && state_.evaluations_since_best >= options_.patience;
}

}  // namespace convoy::training

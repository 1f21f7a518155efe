// EpochTotals: the loss and the accuracy of the training samples of one epoch.
#pragma once

#include <cstdint>
#include <optional>

#include "convoy/apps/train/measurement/loss_log.h"

namespace convoy {

/// Sums over the steps of an epoch so far. Checkpoints store them, so a resumed epoch has the same results.
struct EpochTotals {
  std::int64_t samples = 0;  // of all steps
  double loss = 0;           // sum over all samples
  std::int64_t counted = 0;  // samples of the steps that have counted `correct`
  std::int64_t correct = 0;  // samples whose label had the largest logit

  /// Adds the results of a step.
  void add(const LossesInFlight::Loss& step) {
    samples += step.samples;
    loss += step.value * static_cast<double>(step.samples);
    if (!step.correct) return;
    counted += step.samples;
    correct += *step.correct;
  }
  /// Returns the mean loss of the samples. Requires a step.
  double mean_loss() const { return loss / static_cast<double>(samples); }
  /// Returns the fraction of samples that were classified correctly; nullopt if no step has counted them.
  std::optional<double> accuracy() const {
    if (counted == 0) return std::nullopt;
    return static_cast<double>(correct) / static_cast<double>(counted);
  }
};

}  // namespace convoy

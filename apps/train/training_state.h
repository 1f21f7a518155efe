// TrainingState: the part of a checkpoint other than the model and the optimizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "convoy/apps/train/measurement/epoch_totals.h"
#include "convoy/engine/io/manifest.h"
#include "convoy/engine/optim/loss_average.h"
#include "convoy/engine/optim/loss_scaler.h"

namespace convoy {

/// The position of a training and its results so far.
struct TrainingState {
  std::int64_t step = 0;        // number of completed steps
  std::int64_t epoch = 0;       // epoch of the next step
  std::int64_t epoch_step = 0;  // number of completed steps of that epoch
  std::int64_t samples = 0;
  double train_seconds = 0;  // time of steps, without evaluations and checkpoints
  optim::LossAverage loss = optim::LossAverage();
  double last_loss = 0;      // of the last step whose loss was read
  EpochTotals epoch_totals;  // of the steps since the end of the last epoch whose results were read

  std::optional<optim::LossScaler::State> scale;  // nullopt without loss scaling

  /// Moves to the position after a step on `step_samples` samples. Returns whether the step was the last one
  /// of its epoch.
  bool advance(std::int64_t step_samples, std::int64_t steps_per_epoch);

  /// The result of an evaluation after `step` steps.
  struct Score {
    std::int64_t step = 0;
    double accuracy = 0;
    double loss = 0;
    std::int64_t count = 0;
  };
  std::optional<Score> evaluated;           // the latest evaluation
  std::optional<Score> best;                // the evaluation with the best accuracy
  std::int64_t evaluations_since_best = 0;  // later ones
};

/// Stores the state in a manifest. Doubles keep all their digits, so a resumed training is bitwise identical.
/// `split` names the evaluated images in the metrics, "test" or "validation".
void write_state(const TrainingState& state, io::Manifest& manifest, const std::string& split = "test");
/// Reads the state from the manifest of `checkpoint`. Throws CheckpointError if it is missing or damaged.
TrainingState read_state(const io::Manifest& manifest, const std::filesystem::path& checkpoint);

/// Serializes the state for other ranks, which have no checkpoint.
std::string format_state(const TrainingState& state);
/// Parses the result of format_state().
TrainingState parse_state(const std::string& text);

}  // namespace convoy

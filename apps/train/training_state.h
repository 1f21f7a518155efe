// TrainingState: the part of a checkpoint other than the model and the optimizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "convoy/engine/io/manifest.h"
#include "convoy/engine/optim/loss_scaler.h"
#include "convoy/engine/training/callback.h"

namespace convoy {

/// The position of a training and its results so far.
struct TrainingState {
  std::int64_t step = 0;        // number of completed steps
  std::int64_t epoch = 0;       // epoch of the next step
  std::int64_t epoch_step = 0;  // number of completed steps of that epoch
  std::int64_t samples = 0;
  double train_seconds = 0;  // time of steps, without evaluations and checkpoints
  training::LossMonitor::State losses = {};
  std::optional<optim::LossScaler::State> scale;  // nullopt without loss scaling

  /// Moves to the position after a step on `step_samples` samples. Returns whether the step was the last one
  /// of its epoch.
  bool advance(std::int64_t step_samples, std::int64_t steps_per_epoch);

  std::optional<training::EvaluationResult> evaluated;      // the latest evaluation
  training::EarlyStopping::State stopping = {};             // the evaluation with the best accuracy
  std::optional<training::ReduceOnPlateau::State> plateau;  // with the schedule plateau
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

// Where a training stands: all that a checkpoint keeps beside the model and the optimizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/io/manifest.h"
#include "engine/optim/loss_average.h"
#include "engine/optim/loss_scaler.h"

namespace convoy {

struct TrainingState {
  std::int64_t step = 0;        // updates done
  std::int64_t epoch = 0;       // of the next update
  std::int64_t epoch_step = 0;  // updates of that epoch already done
  std::int64_t samples = 0;
  double train_seconds = 0;  // in steps; without evaluation and saving
  LossAverage loss = LossAverage();
  double last_loss = 0;  // of the last update whose loss was read

  std::optional<LossScaler::State> scale;  // of a training that scales its loss

  /// The newest evaluation, and the best.
  struct Score {
    std::int64_t step = 0;
    double accuracy = 0;
    double loss = 0;
    std::int64_t count = 0;
  };
  std::optional<Score> evaluated;
  std::optional<Score> best;
};

/// Doubles are written with all their digits, so that a resumed training continues bit for bit.
void write_state(const TrainingState& state, Manifest& manifest);
/// CheckpointError where the manifest has no such state, or a damaged one.
TrainingState read_state(const Manifest& manifest, const std::filesystem::path& checkpoint);

/// For other ranks, who have no checkpoint.
std::string text_of_state(const TrainingState& state);
TrainingState state_from_text(const std::string& text);

}  // namespace convoy

// The training loop: updates, evaluations and checkpoints in an order that depends on the step alone.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/evaluator.h"
#include "apps/train_options.h"
#include "apps/training_state.h"
#include "datasets/loader.h"
#include "engine/io/checkpoint.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/schedule.h"
#include "engine/profile/profiler.h"
#include "models/model.h"

namespace convoy {

/// What is known of the steps since the last report; reading losses back makes the device wait, so it is done
/// every
/// --log-every steps only.
struct StepMeasurements {
  double loss = 0;          // of this step: mean over the global batch, before the update
  double average_loss = 0;  // exponential moving average
  double images_per_second = 0;
  double step_ms = 0;
  double data_ms = 0;            // of step_ms, waiting for the loader
  std::size_t memory_bytes = 0;  // peak of the device's allocator
};

struct StepReport {
  std::int64_t step = 0;  // updates done, this one included
  std::int64_t epoch = 0;
  std::int64_t samples = 0;
  double lr = 0;
  std::optional<StepMeasurements> measured;
};

/// Called from run(), in the order of events. Empty ones are skipped.
struct TrainerCallbacks {
  std::function<void(const StepReport&)> on_step;
  std::function<void(std::int64_t epoch)> on_epoch;  // after its last update
  std::function<void(std::int64_t step, const Evaluation&, bool is_best)> on_evaluation;
  std::function<void(std::int64_t step, const std::filesystem::path&)> on_save;
  std::function<void(std::int64_t done, std::int64_t count)> on_evaluation_progress;
};

/// What a trainer works with; all must outlive it.
struct TrainerParts {
  const Model& model;
  const Device& device;
  const DataSet& data;
  TransformSpec transform;
  CheckpointFolder& checkpoints;
  std::map<std::string, std::string> extra;  // of every manifest
  Profiler* profiler = nullptr;
  std::function<int()> stop_signal;  // non-zero: finish the step, save, return
};

class Trainer {
 public:
  /// options: resolved.
  Trainer(const TrainOptions& options, TrainerParts parts);

  /// Takes parameters, optimizer and position from a checkpoint.
  void resume(const std::filesystem::path& checkpoint);

  /// Trains to the end, or until stopped: the signal, else 0. NumericError where a loss or the parameters are
  /// not finite; what was saved before stays.
  int run(TrainerCallbacks callbacks = {});

  /// One batch forward, with its loss: shows that data, model and memory fit. Changes nothing.
  double try_batch();

  const TrainingState& state() const { return state_; }
  std::int64_t total_steps() const { return total_steps_; }
  std::int64_t steps_per_epoch() const { return loader_->steps_per_epoch(); }
  bool finished() const { return state_.step >= total_steps_; }

 private:
  struct PendingLoss {
    std::int64_t step;
    std::vector<Tensor> parts;  // of each micro-batch; their sum is the step's loss
  };

  void take_step();
  void compute_gradients(const std::vector<Batch>& batches);
  void finish_step(std::int64_t samples, double lr);
  bool is_reported(std::int64_t step) const;
  StepMeasurements measure();
  void read_losses();
  bool evaluation_due() const;
  void run_evaluation();
  bool save_due() const;
  void save();
  void check_parameters() const;

  const TrainOptions& options_;
  TrainerParts parts_;
  TrainerCallbacks callbacks_;
  ImageSet train_;  // all training images, or the one batch of --overfit-batch
  std::unique_ptr<DataLoader> loader_;
  std::unique_ptr<Optimizer> optimizer_;
  Schedule schedule_;
  std::int64_t total_steps_ = 0;
  TrainingState state_;
  std::int64_t saved_step_ = -1;  // of the newest checkpoint
  bool best_unsaved_ = false;     // the last evaluation was the best, and no checkpoint holds it yet

  std::vector<PendingLoss> pending_;
  // Since the last measurement:
  std::int64_t window_steps_ = 0, window_samples_ = 0;
  double window_seconds_ = 0;
};

}  // namespace convoy

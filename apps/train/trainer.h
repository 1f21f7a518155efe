// Trainer: the training loop with its evaluations and checkpoints.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/evaluator.h"
#include "apps/common/precision.h"
#include "apps/train/loss_log.h"
#include "apps/train/options.h"
#include "apps/train/step_timer.h"
#include "apps/train/train_step.h"
#include "apps/train/training_state.h"
#include "comm/parallel/communicator_group.h"
#include "comm/parallel/gradient_reducer.h"
#include "comm/parallel/zero/sharded_optimizer.h"
#include "comm/parallel/zero/sharded_parameters.h"
#include "datasets/loader/loader.h"
#include "engine/io/checkpoint.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/schedule.h"
#include "engine/profile/profiler.h"
#include "models/model.h"

namespace convoy {

/// Measurements over the steps since the previous report. One report is made every --log-every steps.
struct StepMeasurements {
  /// Mean loss over the global batch of the reported step, before the optimizer.
  double loss = 0;
  /// Exponential moving average of the loss.
  double average_loss = 0;
  double images_per_second = 0;
  double step_ms = 0;
  /// The part of step_ms that was spent waiting for the data loader.
  double data_ms = 0;
  /// The part of step_ms that was spent waiting for gradients of other ranks; nullopt with one rank.
  std::optional<double> comm_ms;
  /// Peak memory of the device's allocator.
  std::size_t memory_bytes = 0;
  /// State of the loss scaler; nullopt without loss scaling.
  std::optional<LossScaler::State> scale;
};

/// The report of one step.
struct StepReport {
  std::int64_t step = 0;  // number of completed steps, including this one
  std::int64_t epoch = 0;
  std::int64_t samples = 0;
  double lr = 0;
  std::optional<StepMeasurements> measured;
};

/// The breakdown of one step on this rank, in milliseconds. The other members add up to `step`.
struct StepParts {
  /// From the end of the previous step on the device to the end of this one.
  double step = 0;
  /// Waiting for the data loader.
  double data = 0;
  double forward = 0, backward = 0;
  /// Exposed communication: from the end of backward until the gradients of all ranks are summed.
  double communication = 0;
  double optimizer = 0;
  /// The rest: host time between calls, and time in which the device waits for work.
  double idle = 0;
};

/// Functions that Trainer::run() calls in the order of events; empty ones are skipped. A GPU runs
/// asynchronously: a measured step is reported after the GPU has completed it, and the reports of later steps
/// follow it.
struct TrainerCallbacks {
  std::function<void(const StepReport&)> on_step;
  std::function<void(std::int64_t epoch)> on_epoch;  // after the last step of the epoch
  std::function<void(std::int64_t step, const Evaluation&, bool is_best)> on_evaluation;
  std::function<void(std::int64_t step, const std::filesystem::path&)> on_save;
  std::function<void(std::int64_t done, std::int64_t count)> on_evaluation_progress;
  std::function<void(std::int64_t step, const std::string& text)> on_warning;
  /// Called after every step, before its report. If set, each step blocks until the device has completed it.
  std::function<void(std::int64_t step, const StepParts&)> on_parts;
};

/// The objects that a trainer uses. All must outlive the trainer.
struct TrainerParts {
  const Model& model;
  const Device& device;
  const DataSet& data;
  TransformSpec transform;
  CheckpointDirectory& checkpoints;
  /// Additional entries of every manifest.
  std::map<std::string, std::string> extra;
  Profiler* profiler = nullptr;
  /// Returns a signal number to stop after the current step and a checkpoint, or 0.
  std::function<int()> stop_signal;

  /// The communicator for gradients. Null with one rank. With several ranks, each has a trainer with the same
  /// data, options and model.
  Communicator* gradients = nullptr;
  /// The communicator for small messages in host memory: `gradients` on the CPU. Null with one rank.
  Communicator* control = nullptr;
  /// The communicator for batch norm statistics with --sync-bn and several ranks, else null. On the CPU it
  /// carries nothing else.
  Communicator* statistics = nullptr;

  int rank() const { return control != nullptr ? control->rank() : 0; }
  int world_size() const { return control != nullptr ? control->size() : 1; }
};

/// The training loop of one rank. All ranks call the same functions in the same order. Only rank 0 writes
/// checkpoints; stop signals, losses and evaluations are combined over all ranks.
class Trainer {
 public:
  /// `options` must be resolved (resolve_recipe()).
  Trainer(const TrainOptions& options, TrainerParts parts);

  /// Loads parameters, optimizer state and training position from a checkpoint. Returns a warning if its
  /// algorithm cache is damaged or belongs to other hardware. Only rank 0 calls this; broadcast_state() must
  /// follow.
  std::optional<std::string> resume(const std::filesystem::path& checkpoint);
  /// Copies parameters, buffers, optimizer state and training position of rank 0 to all ranks. Collective;
  /// does nothing with one rank.
  void broadcast_state();

  /// Trains to the end and returns 0, or until a stop signal and returns it. Throws NumericError if a loss or
  /// the parameters are not finite; earlier checkpoints remain. Collective.
  int run(TrainerCallbacks callbacks = {});

  /// Runs forward on one batch and returns its mean loss, to check that data, model and memory fit. Changes
  /// no state.
  double try_batch();

  const TrainingState& state() const { return state_; }
  std::int64_t total_steps() const { return total_steps_; }
  std::int64_t steps_per_epoch() const { return loader_->steps_per_epoch(); }
  bool finished() const { return state_.step >= total_steps_; }
  /// Returns the size of this rank's optimizer state.
  std::size_t optimizer_bytes() const;
  /// Returns the maximum memory that gradients have used on this rank.
  std::size_t gradient_bytes() const;

 private:
  /// The report of a step, with the measurements that the device has not yet completed.
  struct Report {
    StepReport report;
    struct Measurement {
      LossesInFlight losses;
      StepTimer::Window window;
      double seconds_before_pause;  // time of the same steps that state_ already includes
      std::int64_t steps, samples;
      std::unique_ptr<LossScaler::Reading> scale;  // null without loss scaling
    };
    std::optional<Measurement> measurement;
  };

  void take_step();
  void finish_step(std::int64_t samples, double lr);
  bool is_reported(std::int64_t step) const;
  void queue_report(StepReport report);
  enum class Wait : bool { no, yes };
  /// Delivers the reports whose measurements are complete; with Wait::yes blocks until all are delivered.
  void deliver_reports(Wait wait);
  void deliver(Report& report);
  void take_losses(const LossesInFlight& losses, const std::optional<LossScaler::State>& scale);
  /// Blocks until the device has completed all steps, so that state_ is up to date. Pauses the timer.
  void synchronize();
  bool is_traced() const { return parts_.profiler != nullptr && parts_.profiler->enabled(); }
  void trace_step();
  void report_parts(double data_ms);
  [[noreturn]] void fail_scaling(const LossScaler::State& scale) const;
  std::string last_checkpoint() const;
  void set_up_sync_batch_norm();
  void combine_running_statistics();
  bool is_sharded() const { return options_.zero > 0 && parts_.world_size() > 1; }
  void make_optimizer();
  void make_reducer();
  void broadcast_optimizer();
  std::optional<std::string> kept_plan() const;
  /// Returns the signal that stops all ranks, or 0. Collective.
  int agree_on_stop() const;
  void check_replicas() const;
  bool evaluation_due() const;
  void run_evaluation();
  bool save_due() const;
  void save();
  void write_checkpoint(const OptimizerState& optimizer);
  void check_parameters() const;

  const TrainOptions& options_;
  TrainerParts parts_;
  Precision precision_;
  TrainerCallbacks callbacks_;
  ImageSet train_;  // all training images, or the one batch of --overfit-batch
  /// The test images in GPU memory, from the first evaluation on; undefined if they stay on the host.
  Tensor resident_test_images_;
  std::unique_ptr<DataLoader> loader_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LossScaler> scaler_;  // null without loss scaling

  // The next four are null without --zero.
  std::unique_ptr<ShardedParameters> shards_;
  std::unique_ptr<ShardedOptimizer> sharded_;  // views optimizer_ as one shard of the whole optimizer
  std::unique_ptr<CommunicatorGroup> shard_group_;
  /// The whole state from a checkpoint, on rank 0 between resume() and broadcast_state().
  std::optional<OptimizerState> restored_;

  std::unique_ptr<GradientReducer> gradients_;  // null with one rank and before run()
  std::unique_ptr<TrainStep> step_;
  Schedule schedule_;
  std::int64_t total_steps_ = 0;
  TrainingState state_;
  std::string bucket_plan_;       // from the checkpoint; empty: none
  std::int64_t saved_step_ = -1;  // step of the latest checkpoint; -1: none
  bool best_unsaved_ = false;     // the last evaluation was the best, and no checkpoint contains it yet

  std::unique_ptr<LossLog> loss_log_;
  /// The end of the previous step, for on_parts.
  std::optional<std::chrono::steady_clock::time_point> step_began_;
  StepTimer timer_;
  std::deque<Report> reports_;  // in order of steps; the measurement of the first is not complete
  // Totals since the last measurement:
  std::int64_t window_steps_ = 0, window_samples_ = 0;
  double seconds_before_pause_ = 0;  // time that synchronize() has already added to state_
  double window_comm_ms_ = 0;        // CPU only: the communication time of a step is known at its end
};

}  // namespace convoy

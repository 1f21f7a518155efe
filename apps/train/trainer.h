// Trainer: the training loop with its evaluations and checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "convoy/apps/common/evaluator.h"
#include "convoy/apps/common/precision.h"
#include "convoy/apps/train/checkpoint_saver.h"
#include "convoy/apps/train/data_parallel.h"
#include "convoy/apps/train/learning_rates.h"
#include "convoy/apps/train/options.h"
#include "convoy/apps/train/profile/profile_report.h"
#include "convoy/apps/train/selection/sample_selection.h"
#include "convoy/apps/train/step_reporter.h"
#include "convoy/apps/train/train_step.h"
#include "convoy/apps/train/trainer_parts.h"
#include "convoy/apps/train/training_state.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/engine/optim/weight_average.h"
#include "convoy/engine/training/early_stopping.h"
#include "convoy/engine/training/loss_monitor.h"
#include "convoy/engine/training/model_checkpoint.h"
#include "convoy/engine/training/reduce_on_plateau.h"
#include "convoy/engine/training/time_monitor.h"

namespace convoy {

/// A training after a step, in memory.
struct RecoveryPoint {
  TrainingState state;
  io::Snapshot snapshot;  // the optimizer or this rank's shard of it; the model unless it is in place
  optim::OptimizerShard peer_shard;  // with shards: a copy of the shard of a peer
};

/// What a rank keeps of a trainer whose group has lost a rank.
struct KeptTraining {
  std::vector<RecoveryPoint> points;  // the newest first; none if the training cannot continue
  std::int64_t saved_step = -1;       // step of the latest checkpoint; -1: none
};

/// The training loop of one rank. All ranks call the same functions in the same order. Rank 0 writes checkpoints,
/// with --zero all ranks do; stop signals, losses and evaluations are combined over all ranks.
class Trainer {
 public:
  /// `options` must be resolved (resolve_recipe()).
  Trainer(const TrainOptions& options, TrainerParts parts);
  Trainer(const Trainer&) = delete;  // its parts refer to each other
  Trainer& operator=(const Trainer&) = delete;

  /// Loads parameters, optimizer state and training position from a checkpoint. Returns a warning if its
  /// algorithm cache is damaged or belongs to other hardware. Only rank 0 calls this; broadcast_state() must
  /// follow.
  std::optional<std::string> resume(const io::Checkpoint& checkpoint);
  /// Returns whether the training can continue in a new group after run() has thrown PeerError: it cannot if it
  /// has failed before its first copy of the state.
  bool can_continue() const { return !keeps_recovery_points() || !recovery_points_.empty(); }
  /// Ends the training after run() has thrown PeerError, for another trainer of the same model that continues
  /// from a complete step. On the CPU without --zero this is the last one, and what an incomplete step has
  /// changed, running statistics, is undone. Otherwise it is a multiple of --snapshot-every.
  KeptTraining abandon();
  /// Continues an abandoned training of the same model on other ranks. Throws PeerError if the ranks that remain
  /// do not have the whole state. Collective; broadcast_state() must follow.
  void adopt(const KeptTraining& kept);
  /// Copies parameters, buffers, optimizer state and training position of rank 0 to all ranks. Collective;
  /// does nothing with one rank.
  void broadcast_state();

  /// Adds callbacks to run(), which are called in the order in which they were added.
  void add(TrainerCallbacks callbacks) { callbacks_.push_back(std::move(callbacks)); }
  /// Trains to the end and returns 0, or until a stop signal and returns it. Throws NumericError if a loss or
  /// the parameters are not finite; earlier checkpoints remain. Collective.
  int run();

  /// Evaluates the model on the test images. With `views`, each is classified in several views
  /// (EvaluationOptions::views). Changes no state. Returns nullopt if a stop signal stops it. Collective.
  std::optional<Evaluation> evaluate_test(bool views) { return evaluate_now(parts_.data.test, views); }

  /// Returns a stop signal that any rank has received, or 0. Collective.
  int agree_on_stop() { return parallel_.agree_on_stop(); }

  /// Runs forward on one batch and returns its mean loss, to check that data, model and memory fit. Changes
  /// no state.
  double try_batch();

  /// Returns the position of the training, and its results so far.
  TrainingState state() const;
  std::int64_t total_steps() const { return total_steps_; }
  std::int64_t steps_per_epoch() const { return loader_->steps_per_epoch(); }
  bool finished() const { return state_.step >= total_steps_ || stopping_.should_stop(); }
  /// Returns whether the last --patience evaluations were no better than an earlier one.
  bool is_out_of_patience() const { return stopping_.should_stop(); }
  std::size_t optimizer_bytes() const { return parallel_.optimizer_bytes(); }
  std::size_t gradient_bytes() const { return parallel_.gradient_bytes(); }

 private:
  static constexpr const char* kAlgorithmsKey = "timed_choices";  // of a manifest

  /// Returns whether any of the callbacks has this function.
  template <class Function>
  bool has(Function TrainerCallbacks::*function) const;
  /// Calls this function of all callbacks.
  template <class Function, class... Arguments>
  void call(Function TrainerCallbacks::*function, const Arguments&... arguments) const {
    for (const TrainerCallbacks& each : callbacks_)
      if (each.*function) (each.*function)(arguments...);
  }
  /// Returns whether the learning rate follows the training losses of epochs: the schedule plateau without validation.
  bool follows_epochs() const { return plateau_ && parts_.data.validation.size() == 0; }
  /// Continues from a state.
  void set_state(const TrainingState& state);
  int run_steps();
  void take_step();
  void keep_buffers();
  /// Lets parameters whose learning rate has ended by the next step require no gradient.
  void freeze_ended();
  /// Makes the part of --ema or --lookahead that follows a step.
  void average_weights();
  /// Returns the average of the weights, as a checkpoint stores it; nothing without --ema and --lookahead.
  std::vector<optim::NamedState> other_weights() const;
  /// Returns the average if it is what evaluations use; else null.
  optim::WeightAverage* evaluated_average() const { return options_.ema > 0 ? average_.get() : nullptr; }
  /// Sets the running statistics, also those of the average, to those that evaluations and checkpoints use. Collective.
  void combine_running_statistics();
  /// Blocks until the device has completed all steps, so that state_ and all parameters are up to date.
  void synchronize();
  /// Reports the warnings of kernels and of the captured step since the last call.
  void report_warnings();
  void check_peers() const;
  /// Updates the monitors. Throws NumericError if a loss is not finite or gradients overflow.
  void take_results(const CompletedSteps& completed);
  /// Queues the result of the epoch whose last step is `last`, and whose results are all read.
  void end_epoch(const training::StepResult& last);
  /// Calls on_epoch for the queued results.
  void report_epochs();
  [[noreturn]] void fail_scaling(const optim::LossScaler::State& scale);
  std::string last_checkpoint();
  bool evaluation_due() const;
  void run_evaluation();
  std::optional<Evaluation> evaluate_now(const data::ImageSet& set, bool views);
  training::ModelCheckpoint::Position position() const;
  void save(bool is_best);
  io::Manifest make_manifest() const;
  /// Completes a save in progress without the other ranks. One with shards is given up.
  void end_save_alone();
  /// Calls on_save for a checkpoint that is complete.
  void report(const std::optional<SaveReport>& save);
  bool keeps_recovery_points() const;
  void take_recovery_point();
  /// Reports the complete profile and writes its trace, on rank 0.
  void report_profile();
  void check_parameters();

  const TrainOptions& options_;
  TrainerParts parts_;
  Precision precision_;
  std::vector<TrainerCallbacks> callbacks_;
  data::ImageSet train_;  // all training images, or the one batch of --overfit-batch
  /// The images of the latest evaluation in GPU memory; undefined if they stay on the host.
  Tensor resident_images_;
  const data::ImageSet* resident_set_ = nullptr;  // which images these are; null before the first evaluation
  std::optional<StepProfile> profile_;            // before the loader, whose threads allocate memory
  std::unique_ptr<data::DataLoader> loader_;
  std::unique_ptr<optim::LossScaler> scaler_;  // null without loss scaling
  DataParallel parallel_;
  std::unique_ptr<TrainStep> step_;
  std::optional<SelectionRecorder> selection_;  // with --hardest
  std::unique_ptr<LearningRates> rates_;
  /// The average of --ema, or the slow weights of --lookahead; null without them, and after a complete run().
  std::unique_ptr<optim::WeightAverage> average_;
  std::int64_t total_steps_ = 0;
  TrainingState state_;  // without the states of the monitors
  training::LossMonitor losses_;
  training::TimeMonitor times_;
  training::EarlyStopping stopping_;
  training::ModelCheckpoint checkpoint_;              // decides when to save
  std::optional<training::ReduceOnPlateau> plateau_;  // with --schedule plateau
  CheckpointSaver saver_;
  std::vector<RecoveryPoint> recovery_points_;  // at most two, the newest first
  /// The values of the model's buffers before the current step, if the training may continue in a new group.
  std::vector<Tensor> buffers_before_step_;
  std::unique_ptr<StepReporter> reporter_;
  std::vector<training::EpochResult> ended_epochs_;  // that are not yet reported
};

}  // namespace convoy

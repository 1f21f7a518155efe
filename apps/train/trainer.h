// Trainer: the training loop with its evaluations and checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/apps/data/evaluator.h"
#include "convoy/apps/train/checkpoint_saver.h"
#include "convoy/apps/train/data_parallel.h"
#include "convoy/apps/train/options/learning_rates.h"
#include "convoy/apps/train/step_profile.h"
#include "convoy/apps/train/step_reporter.h"
#include "convoy/apps/train/train_context.h"
#include "convoy/apps/train/train_step.h"
#include "convoy/apps/train/training_state.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/engine/optim/weight_average.h"
#include "convoy/engine/training/callback.h"

namespace convoy {

/// The training loop of one rank. All ranks call the same functions in the same order. Rank 0 writes
/// checkpoints, with --zero all ranks do; stop signals, losses and evaluations are combined over all ranks.
class Trainer {
 public:
  explicit Trainer(TrainContext context);
  Trainer(const Trainer&) = delete;  // its parts refer to each other
  Trainer& operator=(const Trainer&) = delete;

  /// Loads parameters, optimizer state and training position from a checkpoint. Returns a warning if its
  /// algorithm cache is damaged or belongs to other hardware. Only rank 0 calls this; broadcast_state() must
  /// follow.
  std::optional<std::string> resume(const io::Checkpoint& checkpoint);
  /// Continues from a state of a model and an optimizer that are in place, whose latest checkpoint is that of
  /// `saved_step`; -1: none.
  void set_state(const TrainingState& state, std::int64_t saved_step);
  /// Copies parameters, buffers, optimizer state and training position of rank 0 to all ranks. Collective;
  /// does nothing with one rank.
  void broadcast_state();

  /// Adds a callback to run(), which are called in the order in which they were added. Must outlive run().
  void add(training::Callback& callback) { callbacks_.add(callback); }
  /// Trains to the end and returns 0, or until a stop signal and returns it. Throws NumericError if a loss or
  /// the parameters are not finite; earlier checkpoints remain. Collective.
  int run();

  /// Evaluates the model on the test images. With `views`, each is classified in several views
  /// (EvaluationOptions::views). Changes no state. Returns nullopt if a stop signal stops it. Collective.
  std::optional<Evaluation> evaluate_test(bool views) { return evaluate_now(context_.data.test, views); }
  /// Returns the latest evaluation of run(); nullopt before the first one.
  const std::optional<Evaluation>& evaluation() const { return evaluation_; }
  /// Runs forward on one batch and returns its mean loss, to check that data, model and memory fit. Changes
  /// no state.
  double try_batch();

  /// Trains a step with each of `rates` in turn, and returns the losses, which are the same on all ranks. Ends after one
  /// for which goes_on() is false. Changes parameters, buffers and the state of the optimizer, and blocks until the device
  /// has computed each step. For a trainer that does nothing else. Collective.
  std::vector<double> try_rates(const std::vector<double>& rates,
                                const std::function<bool(double loss)>& goes_on);

  /// Returns the position of the training, and its results so far.
  TrainingState state() const;
  std::int64_t step() const { return state_.step; }
  std::int64_t total_steps() const { return total_steps_; }
  std::int64_t steps_per_epoch() const { return loader_->steps_per_epoch(); }
  bool finished() const { return state_.step >= total_steps_ || stopping_.should_stop(); }

  const TrainContext& context() const { return context_; }
  DataParallel& parallel() { return parallel_; }
  const DataParallel& parallel() const { return parallel_; }
  /// Returns the average of the weights, as a checkpoint stores it; nothing without --ema.
  std::vector<optim::NamedState> other_weights() const;
  /// Blocks until the device has completed all steps, so that state() and all parameters are up to date.
  /// Collective.
  void synchronize();
  /// Completes a save in progress without the other ranks. One with shards is given up. Returns the step of
  /// the latest checkpoint; -1: none.
  std::int64_t end_save_alone();

 private:
  static constexpr const char* kAlgorithmsKey = "timed_choices";  // of a manifest

  void take_step();
  /// Returns whether the learning rate follows the training losses of epochs: the schedule plateau without
  /// evaluations on validation images.
  bool follows_epochs() const {
    return plateau_ && (context_.data.validation.size() == 0 || *options_.eval_every == 0);
  }
  /// Lets parameters whose learning rate has ended by the next step require no gradient.
  void freeze_ended();
  /// Makes the part of --ema that follows a step.
  void average_weights();
  /// Sets the running statistics, also those of the average, to those that evaluations and checkpoints use.
  /// Collective.
  void combine_running_statistics();
  /// Updates the monitors and calls the callbacks. Throws NumericError if a loss is not finite or gradients
  /// overflow.
  void take_results(CompletedSteps& completed);
  /// Warns, once, of a mean loss that is far above that of equal probabilities. `what` is the set of images.
  void warn_if_far_above_chance(std::int64_t step, std::string_view what, double loss);
  /// Reports the warnings of kernels and of the captured step since the last call.
  void report_warnings();
  /// Returns the step of the last checkpoint, as a part of an error.
  std::string last_checkpoint();
  bool evaluation_due() const;
  void run_evaluation();
  std::optional<Evaluation> evaluate_now(const data::ImageSet& set, bool views);
  void save(bool is_best);
  io::Manifest make_manifest() const;
  void check_parameters();
  /// Calls on_save for a checkpoint that is complete.
  void report(const std::optional<training::SavedCheckpoint>& save) const;
  /// Reports the complete profile and writes its trace, on rank 0.
  void report_profile() const;

  dist::RankObserver alone_;      // of a context without an observer
  Continuation no_continuation_;  // of a context without a continuation
  TrainContext context_;
  const TrainOptions& options_;
  training::CallbackList callbacks_;
  data::ImageSet train_;  // all training images, or the one batch of --overfit-batch
  /// The images of the latest evaluation in GPU memory; undefined if they stay on the host.
  Tensor resident_images_;
  const data::ImageSet* resident_set_ = nullptr;  // which images these are; null before the first evaluation
  std::optional<StepProfile> profile_;            // before the loader, whose threads allocate memory
  std::unique_ptr<data::DataLoader> loader_;
  std::unique_ptr<optim::LossScaler> scaler_;  // null without loss scaling
  DataParallel parallel_;
  std::unique_ptr<TrainStep> step_;
  std::unique_ptr<LearningRates> rates_;
  /// The average of --ema, which evaluations and checkpoints use; null without it, and after a complete run().
  std::unique_ptr<optim::WeightAverage> average_;
  std::int64_t total_steps_ = 0;
  TrainingState state_;  // without the states of the next objects
  training::LossMonitor losses_;
  bool warned_of_loss_ = false;
  training::EarlyStopping stopping_;
  training::ModelCheckpoint checkpoint_;              // decides when to save
  std::optional<training::ReduceOnPlateau> plateau_;  // with --schedule plateau
  std::optional<Evaluation> evaluation_;              // the latest
  CheckpointSaver saver_;
  std::unique_ptr<StepReporter> reporter_;
};

}  // namespace convoy

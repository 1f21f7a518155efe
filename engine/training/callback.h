// Callback, an object that follows a training, and the callbacks of this library. A training loop reports its
// events; convoy-train reports the same ones.
//
//   LossMonitor losses(/*every=*/20);
//   EarlyStopping stopping({.patience = 3});
//   CallbackList callbacks({&losses, &stopping});
//   for (int epoch = 0; epoch < epochs && !callbacks.should_stop(); ++epoch) {
//     for (…) callbacks.on_step({.step = ++step, .epoch = epoch, .samples = 32, .loss = loss.value().item()});
//     callbacks.on_epoch(losses.end_epoch());
//     callbacks.on_evaluation({.step = step, .accuracy = …});
//   }
//
// One thread at a time uses an object. Exceptions of callbacks leave the functions that call them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convoy/engine/io/checkpoint.h"
#include "convoy/engine/optim/loss_average.h"
#include "convoy/engine/optim/loss_scaler.h"

namespace convoy::training {

/// Measurements over the steps since the previous ones. convoy-train makes them every --log-every steps.
struct StepMeasurements {
  double loss = 0;               // of the step; of the latest step without overflow with loss scaling
  double average_loss = 0;       // exponential moving average
  double images_per_second = 0;  // of all ranks
  double step_ms = 0;            // mean time of a step
  double data_ms = 0;            // the part of step_ms that was spent waiting for the data loader
  /// The part of step_ms that was spent waiting for gradients of other ranks; nullopt with one rank.
  std::optional<double> comm_ms = {};
  std::size_t memory_bytes = 0;                        // peak of the device's allocator
  std::optional<optim::LossScaler::State> scale = {};  // nullopt without loss scaling
};

/// The result of a step that the device has completed.
struct StepResult {
  std::int64_t step = 0;     // number of completed steps, including this one
  std::int64_t epoch = 0;    // of the step, from 0
  std::int64_t samples = 0;  // of the step, on all ranks
  double loss = 0;           // mean over the samples, before the update of the parameters
  /// Samples that were classified correctly; nullopt if they are not counted.
  std::optional<std::int64_t> correct = {};
  // Only convoy-train sets these:
  std::int64_t total_samples = 0;                 // of all steps so far
  double lr = 0;                                  // learning rate of the step
  std::optional<StepMeasurements> measured = {};  // nullopt between measurements
};

/// The result of an epoch on its training samples: augmented, each before the step that it was in.
struct EpochResult {
  std::int64_t epoch = 0;    // from 0
  std::int64_t step = 0;     // number of completed steps at its end
  std::int64_t samples = 0;  // of all ranks, without those of steps that overflow f16
  double loss = 0;           // mean over the samples
  /// Fraction that was classified correctly; nullopt if no step has counted them.
  std::optional<double> accuracy = {};
};

/// The result of an evaluation.
struct EvaluationResult {
  std::int64_t step = 0;   // number of completed steps
  double accuracy = 0;     // fraction of the samples that were classified correctly
  double loss = 0;         // mean over the samples
  std::int64_t count = 0;  // number of samples
  bool is_best = false;    // convoy-train: the accuracy is higher than in all earlier ones
};

/// A checkpoint that is complete.
struct SavedCheckpoint {
  std::int64_t step = 0;            // of the checkpoint; the training is further
  std::filesystem::path path = {};  // of the checkpoint
  double stall_ms = 0;              // how long the training waited for it, on rank 0
  double write_ms = 0;              // from its begin until it was on disk
};

/// A base class of objects that follow a training. The functions do nothing unless they are overridden.
class Callback {
 public:
  virtual ~Callback() = default;
  /// Receives the result of a step, in the order of the steps. The host does not wait for a GPU: convoy-train
  /// reads the losses of several steps at a time, at the next measured step, evaluation or checkpoint.
  virtual void on_step(const StepResult& /*result*/) {}
  /// Receives the result of an epoch, after that of its last step.
  virtual void on_epoch(const EpochResult& /*result*/) {}
  /// Receives the result of an evaluation, after those of the steps and epochs before it.
  virtual void on_evaluation(const EvaluationResult& /*result*/) {}
  /// Returns whether the training should end. convoy-train asks its own EarlyStopping only.
  virtual bool should_stop() const { return false; }

  // Only convoy-train calls the following functions, on the thread that trains.

  /// Learns that the step `step` is enqueued on the device. Its result may follow later.
  virtual void on_progress(std::int64_t /*step*/, double /*lr*/) {}
  /// Learns during an evaluation that about `done` of `count` images are evaluated.
  virtual void on_evaluation_progress(std::int64_t /*done*/, std::int64_t /*count*/) {}
  /// Learns of a checkpoint on rank 0. It is written in the background, so steps after it have been reported.
  virtual void on_save(const SavedCheckpoint& /*checkpoint*/) {}
  /// Receives one line of text about a problem of a step that does not end the training.
  virtual void on_warning(std::int64_t /*step*/, const std::string& /*text*/) {}
  /// Receives the tables of --profile on rank 0, once all of its steps are complete.
  virtual void on_profile(const std::string& /*text*/) {}
  /// Learns that the training has failed after `step` steps, before the exception leaves the loop. Exceptions
  /// of this function are ignored.
  virtual void on_exception(std::int64_t /*step*/, const std::exception& /*error*/) {}
};

/// Callbacks that are called one after the other, in their order.
class CallbackList {
 public:
  /// The callbacks must outlive the list.
  explicit CallbackList(std::vector<Callback*> callbacks = {}) : callbacks_(std::move(callbacks)) {}
  /// Appends a callback.
  void add(Callback& callback) { callbacks_.push_back(&callback); }

  /// Calls a function of all callbacks: call(&Callback::on_save, checkpoint).
  template <class Function, class... Arguments>
  void call(Function Callback::*function, const Arguments&... arguments) const {
    for (Callback* each : callbacks_) (each->*function)(arguments...);
  }
  /// Calls on_step() of all callbacks.
  void on_step(const StepResult& result) const { call(&Callback::on_step, result); }
  /// Calls on_epoch() of all callbacks.
  void on_epoch(const EpochResult& result) const { call(&Callback::on_epoch, result); }
  /// Calls on_evaluation() of all callbacks.
  void on_evaluation(const EvaluationResult& result) const { call(&Callback::on_evaluation, result); }
  /// Returns whether any callback wants the training to end.
  bool should_stop() const {
    return std::any_of(callbacks_.begin(), callbacks_.end(),
                       [](const Callback* each) { return each->should_stop(); });
  }

 private:
  std::vector<Callback*> callbacks_;
};

/// Sums over the samples of an epoch so far.
struct EpochTotals {
  std::int64_t samples = 0;  // of all steps
  double loss = 0;           // sum over all samples
  std::int64_t counted = 0;  // samples of the steps that have counted `correct`
  std::int64_t correct = 0;  // samples that were classified correctly
};

/// Averages the losses of the steps and of each epoch, and ends the training if a loss is not finite.
class LossMonitor final : public Callback {
 public:
  /// The state for a checkpoint. After restore(), all results have the same bits as without the interruption.
  struct State {
    std::int64_t step = 0;              // the latest step
    std::int64_t epoch = 0;             // its epoch
    double last = 0;                    // its loss
    optim::LossAverage::State average;  // the moving average
    EpochTotals totals;                 // of the epoch in progress
  };

  /// Prints a line every `every` steps to stdout; 0: none.
  explicit LossMonitor(std::int64_t every = 0) : every_(every) {}

  /// Adds the result of a step. Throws NumericError if the loss is not finite.
  void on_step(const StepResult& result) override;
  /// Returns what is wrong with the result of the next step: text if its loss is not finite, else an empty
  /// string.
  std::string problem_of(const StepResult& result) const;

  /// Returns the loss of the latest step; 0 before the first one.
  double last() const { return state_.last; }
  /// Returns the bias-corrected moving average of the losses; NaN before the first step.
  double average() const { return average_.value(); }
  /// Returns the result of the epoch so far, and begins the next one. Its loss is NaN if it had no step.
  EpochResult end_epoch();

  /// Returns the state for a checkpoint.
  State state() const;
  /// Continues from a state.
  void restore(const State& state);

 private:
  std::int64_t every_;
  State state_;  // without the moving average
  optim::LossAverage average_;
};

/// The time of some steps.
struct StepTimes {
  std::int64_t steps = 0;    // number of steps
  std::int64_t samples = 0;  // of all ranks
  double seconds = 0;        // without evaluations and checkpoints

  /// Returns the mean rate of all ranks.
  double samples_per_second() const { return static_cast<double>(samples) / seconds; }
  /// Returns the mean time of a step in milliseconds.
  double step_ms() const { return seconds * 1e3 / static_cast<double>(steps); }
};

/// Sums up the time of steps, from event to event on the host's clock, without the time before
/// on_evaluation(). convoy-train measures on the clock of the device instead.
class TimeMonitor final : public Callback {
 public:
  /// Begins the first step. Prints a line for each epoch to stdout if `prints` is set.
  explicit TimeMonitor(bool prints = false) : prints_(prints) {}

  void on_step(const StepResult& result) override;
  void on_epoch(const EpochResult& result) override;
  void on_evaluation(const EvaluationResult& /*result*/) override { begin_ = Clock::now(); }

  /// Returns the time of all steps.
  const StepTimes& total() const { return total_; }
  /// Returns the time of the steps since the last epoch.
  const StepTimes& epoch() const { return epoch_; }
  /// Continues from the total of a checkpoint.
  void restore(const StepTimes& total) { total_ = total; }

 private:
  using Clock = std::chrono::steady_clock;

  bool prints_;
  Clock::time_point begin_ = Clock::now();  // of the current step
  StepTimes total_, epoch_;
};

/// What of an evaluation is compared.
enum class Metric { accuracy, loss };

/// Options of EarlyStopping.
struct EarlyStoppingOptions {
  std::int64_t patience = 0;  // evaluations without a better one after which the training ends; 0: never
  Metric metric = Metric::accuracy;  // a higher accuracy or a lower loss is better
  double min_delta = 0;              // by how much more than this an evaluation must be better
  /// An evaluation with a larger loss, of a training that diverges, is never the best one.
  double max_loss = std::numeric_limits<double>::infinity();
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

/// Options of ReduceOnPlateau. The defaults are PyTorch's.
struct PlateauOptions {
  double factor = 0.1;         // of the rate at each reduction; more than 0 and less than 1
  std::int64_t patience = 10;  // losses in a row that are no better, which do not reduce the rate yet
  double minimum = 0;          // of the rate
  double threshold = 1e-4;     // a loss is better if it is less than the best one times 1 - threshold
};

/// Multiplies the learning rate by `factor` after more than `patience` losses in a row that are no better
/// than the best one, as PyTorch's ReduceLROnPlateau. As a callback, it follows the losses of evaluations; a
/// caller that has none calls add() with other losses, such as those of epochs.
class ReduceOnPlateau final : public Callback {
 public:
  /// The state for a checkpoint.
  struct State {
    double first = 0;            // the rate of the constructor
    double rate = 0;             // the present rate
    std::optional<double> best;  // the best loss
    std::int64_t bad = 0;        // losses since the best one, or since the last reduction
  };

  /// Begins with `rate`. Throws UsageError for invalid options, and for a rate that is less than the minimum.
  explicit ReduceOnPlateau(double rate, PlateauOptions options = {});

  void on_evaluation(const EvaluationResult& result) override { add(result.loss); }
  /// Adds a loss. NaN is no better than any other.
  void add(double loss);
  /// Returns the rate of the next step.
  double rate() const { return state_.rate; }

  /// Returns the state for a checkpoint.
  const State& state() const { return state_; }
  /// Continues from a state. If that began with another rate, the rate is reduced in the same proportion.
  void restore(const State& state);

 private:
  PlateauOptions options_;
  State state_;
};

/// Options of ModelCheckpoint.
struct ModelCheckpointOptions {
  std::int64_t every_steps = 0;      // steps between checkpoints; 0: one after each epoch
  bool keep_best = true;             // also one after the best evaluation, which BEST names
  Metric metric = Metric::accuracy;  // of the best evaluation
  std::string model_name;            // io::Manifest::model
};

/// Saves checkpoints in regular intervals, and after each evaluation that is the best so far. With an
/// evaluation after each epoch, the checkpoint of the best epoch is written twice: the second one is named by
/// BEST.
class ModelCheckpoint final : public Callback {
 public:
  /// A function that saves the checkpoint of a step. `is_best`: BEST should name it.
  using Save = std::function<void(std::int64_t step, bool is_best)>;
  /// A place in a training at which a checkpoint may be due.
  struct Position {
    std::int64_t step = 0;       // number of completed steps
    bool ends_epoch = false;     // whether the step is the last one of its epoch
    bool ends_training = false;  // whether it is the last one of all
  };

  /// Saves the model and the optimizer to `directory`, whose settings say how many checkpoints it keeps. The
  /// references must outlive this object.
  ModelCheckpoint(io::CheckpointDirectory& directory, const nn::Module& model,
                  const optim::Optimizer& optimizer, ModelCheckpointOptions options = {});
  /// Calls `save` instead.
  ModelCheckpoint(Save save, ModelCheckpointOptions options);

  void on_step(const StepResult& result) override;
  void on_epoch(const EpochResult& result) override;
  void on_evaluation(const EvaluationResult& result) override;

  /// Learns that the latest evaluation is the best one, or not: whether the next checkpoint is the best. For
  /// callers that compare evaluations themselves, and call save() instead of the functions above.
  void set_best(bool is_best) { best_unsaved_ = is_best && options_.keep_best; }
  /// Returns whether a checkpoint is due: after the best evaluation, at the end, and in regular intervals, if
  /// there is none of this step.
  bool is_due(const Position& position) const;
  /// Saves the checkpoint of a step. Throws what the saving throws: OutputError.
  void save(std::int64_t step);

  /// Returns the step of the latest checkpoint; -1: none.
  std::int64_t saved_step() const { return saved_step_; }
  /// Continues after a checkpoint; -1: none.
  void restore(std::int64_t saved_step) { saved_step_ = saved_step; }
  /// Forgets the latest checkpoint, which was given up.
  void withdraw() { saved_step_ = previous_saved_step_; }

 private:
  Save save_;
  ModelCheckpointOptions options_;
  EarlyStopping best_;
  bool best_unsaved_ = false;  // the latest evaluation was the best, and no checkpoint contains it yet
  std::int64_t saved_step_ = -1, previous_saved_step_ = -1;
};

}  // namespace convoy::training

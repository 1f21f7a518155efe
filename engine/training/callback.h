// Callback: an object that follows a training, and LossMonitor. A training loop reports its events; convoy-train
// reports the same ones.
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
// One thread at a time uses an object of this directory. Exceptions of callbacks leave the functions that call them.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

/// The breakdown of one step on this rank, in milliseconds. The other members add up to `step`.
struct StepParts {
  double step = 0;           // from the end of the previous step on the device to the end of this one
  double data = 0;           // waiting for the data loader
  double forward = 0;        // the forward passes of all micro-batches
  double backward = 0;       // their backward passes
  double communication = 0;  // from the end of backward until the gradients of all ranks are summed
  double optimizer = 0;      // the step of the optimizer
  double idle = 0;           // the rest: host time between calls, and time in which the device waits for work
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
  std::optional<StepParts> parts = {};            // nullopt unless a callback wants them
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
  /// Returns whether StepResult::parts is wanted. If so, each step blocks until the device has completed it.
  virtual bool wants_parts() const { return false; }
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
  /// Returns whether a function of any callback returns true.
  bool any(bool (Callback::*function)() const) const {
    for (const Callback* each : callbacks_)
      if ((each->*function)()) return true;
    return false;
  }

  /// Calls on_step() of all callbacks.
  void on_step(const StepResult& result) const { call(&Callback::on_step, result); }
  /// Calls on_epoch() of all callbacks.
  void on_epoch(const EpochResult& result) const { call(&Callback::on_epoch, result); }
  /// Calls on_evaluation() of all callbacks.
  void on_evaluation(const EvaluationResult& result) const { call(&Callback::on_evaluation, result); }
  /// Returns whether any callback wants the training to end.
  bool should_stop() const { return any(&Callback::should_stop); }

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

}  // namespace convoy::training

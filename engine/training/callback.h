// Callback: an object that follows a training. A training loop reports its events; convoy-train uses the same classes.
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
#include <optional>
#include <utility>
#include <vector>

namespace convoy::training {

/// The result of a step that the device has completed.
struct StepResult {
  std::int64_t step = 0;     // number of completed steps, including this one
  std::int64_t epoch = 0;    // of the step, from 0
  std::int64_t samples = 0;  // of the step, on all ranks
  double loss = 0;           // mean over the samples, before the update of the parameters
  std::optional<std::int64_t>
      correct;  // samples that were classified correctly; nullopt if they are not counted
};

/// The result of an epoch on its training samples: augmented, each before the step that it was in.
struct EpochResult {
  std::int64_t epoch = 0;    // from 0
  std::int64_t step = 0;     // number of completed steps at its end
  std::int64_t samples = 0;  // of all ranks, without those of steps that overflow f16
  double loss = 0;           // mean over the samples
  std::optional<double>
      accuracy;  // fraction that was classified correctly; nullopt if no step has counted them
};

/// The result of an evaluation.
struct EvaluationResult {
  std::int64_t step = 0;   // number of completed steps
  double accuracy = 0;     // fraction of the samples that were classified correctly
  double loss = 0;         // mean over the samples
  std::int64_t count = 0;  // number of samples
};

/// A base class of objects that follow a training. The functions do nothing unless they are overridden.
class Callback {
 public:
  virtual ~Callback() = default;
  /// Receives the result of a step, in the order of the steps.
  virtual void on_step(const StepResult& /*result*/) {}
  /// Receives the result of an epoch, after that of its last step.
  virtual void on_epoch(const EpochResult& /*result*/) {}
  /// Receives the result of an evaluation, after those of the steps and epochs before it.
  virtual void on_evaluation(const EvaluationResult& /*result*/) {}
  /// Returns whether the training should end.
  virtual bool should_stop() const { return false; }
};

/// Callbacks that are called one after the other, in their order.
class CallbackList final : public Callback {
 public:
  /// The callbacks must outlive the list.
  explicit CallbackList(std::vector<Callback*> callbacks) : callbacks_(std::move(callbacks)) {}

  void on_step(const StepResult& result) override {
    for (Callback* each : callbacks_) each->on_step(result);
  }
  void on_epoch(const EpochResult& result) override {
    for (Callback* each : callbacks_) each->on_epoch(result);
  }
  void on_evaluation(const EvaluationResult& result) override {
    for (Callback* each : callbacks_) each->on_evaluation(result);
  }
  /// Returns whether any of the callbacks asks for the end.
  bool should_stop() const override {
    for (const Callback* each : callbacks_)
      if (each->should_stop()) return true;
    return false;
  }

 private:
  std::vector<Callback*> callbacks_;
};

}  // namespace convoy::training

// The callbacks of a training, and what they receive. Reports are values without shared state.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "convoy/apps/common/evaluator.h"
#include "convoy/engine/optim/loss_scaler.h"
#include "convoy/engine/training/callback.h"

namespace convoy {

/// Measurements over the steps since the previous report. One report is made every --log-every steps.
struct StepMeasurements {
  /// Mean loss over the global batch of the reported step, before the optimizer.
  double loss = 0;
  /// Exponential moving average of the loss.
  double average_loss = 0;
  double images_per_second = 0;  // of all ranks
  double step_ms = 0;            // mean time of a step
  /// The part of step_ms that was spent waiting for the data loader.
  double data_ms = 0;
  /// The part of step_ms that was spent waiting for gradients of other ranks; nullopt with one rank.
  std::optional<double> comm_ms;
  /// Peak memory of the device's allocator.
  std::size_t memory_bytes = 0;
  /// State of the loss scaler; nullopt without loss scaling.
  std::optional<optim::LossScaler::State> scale;
};

/// The report of one step.
struct StepReport {
  std::int64_t step = 0;                     // number of completed steps, including this one
  std::int64_t epoch = 0;                    // epoch of the step, from 0
  std::int64_t samples = 0;                  // samples of all ranks in all steps so far
  double lr = 0;                             // learning rate of the step
  std::optional<StepMeasurements> measured;  // nullopt between reports
};

/// The breakdown of one step on this rank, in milliseconds. The other members add up to `step`.
struct StepParts {
  /// From the end of the previous step on the device to the end of this one.
  double step = 0;
  /// Waiting for the data loader.
  double data = 0;
  double forward = 0;   // the forward passes of all micro-batches
  double backward = 0;  // their backward passes
  /// Exposed communication: from the end of backward until the gradients of all ranks are summed.
  double communication = 0;
  double optimizer = 0;  // the step of the optimizer
  /// The rest: host time between calls, and time in which the device waits for work.
  double idle = 0;
};

/// The report of a checkpoint that is complete.
struct SaveReport {
  std::int64_t step = 0;       // of the checkpoint; the training is further
  std::filesystem::path path;  // of the checkpoint
  double stall_ms = 0;         // how long the training waited for it, on rank 0
  double write_ms = 0;         // from its begin until it was on disk
};

/// Functions that a trainer calls on the thread that trains; empty ones are skipped. Reports of steps arrive
/// in order. The host does not wait for a GPU: a measured step is reported after the GPU has completed it,
/// and the reports of later steps follow it. An exception of a callback ends the training.
struct TrainerCallbacks {
  std::function<void(const StepReport&)> on_step;  // after every step
  /// Called after the report of the last step of an epoch, once the losses of its steps are read: at the next measured
  /// step, evaluation or checkpoint.
  std::function<void(const training::EpochResult&)> on_epoch;
  /// Called after an evaluation at `step`. `is_best`: the accuracy is higher than in all earlier ones.
  std::function<void(std::int64_t step, const Evaluation&, bool is_best)> on_evaluation;
  /// Called on rank 0, after a checkpoint is complete. It is written in the background, so some steps after
  /// that of the checkpoint have been reported.
  std::function<void(const SaveReport&)> on_save;
  /// Called during an evaluation, as EvaluationOptions::progress.
  std::function<void(std::int64_t done, std::int64_t count)> on_evaluation_progress;
  /// Called if a step has a problem that does not end the training, with one line of text.
  std::function<void(std::int64_t step, const std::string& text)> on_warning;
  /// Called on rank 0 once all steps of --profile are complete, with its tables.
  std::function<void(const std::string& text)> on_profile;
  /// Called after every step, before its report. If set, each step blocks until the device has completed it.
  std::function<void(std::int64_t step, const StepParts&)> on_parts;
  /// Called if the training fails after `step` steps, before the exception leaves Trainer::run(). Exceptions
  /// of this function are ignored.
  std::function<void(std::int64_t step, const std::exception&)> on_exception;
};

}  // namespace convoy

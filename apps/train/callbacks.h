// The callbacks of a training, and what they receive.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "convoy/apps/common/evaluator.h"
#include "convoy/engine/optim/loss_scaler.h"

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
  std::optional<optim::LossScaler::State> scale;
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

/// Functions that a trainer calls on the thread that trains; empty ones are skipped. Reports of steps arrive in
/// order. The host does not wait for a GPU: a measured step is reported after the GPU has completed it, and the
/// reports of later steps follow it. An exception of a callback ends the training.
struct TrainerCallbacks {
  std::function<void(const StepReport&)> on_step;
  std::function<void(std::int64_t epoch)> on_epoch;  // after the last step of the epoch
  std::function<void(std::int64_t step, const Evaluation&, bool is_best)> on_evaluation;
  /// Called on rank 0, after a checkpoint is complete.
  std::function<void(std::int64_t step, const std::filesystem::path&)> on_save;
  std::function<void(std::int64_t done, std::int64_t count)> on_evaluation_progress;
  std::function<void(std::int64_t step, const std::string& text)> on_warning;
  /// Called after every step, before its report. If set, each step blocks until the device has completed it.
  std::function<void(std::int64_t step, const StepParts&)> on_parts;
  /// Called if the training fails after `step` steps, before the exception leaves Trainer::run(). Exceptions of
  /// this function are ignored.
  std::function<void(std::int64_t step, const std::exception&)> on_exception;
};

}  // namespace convoy

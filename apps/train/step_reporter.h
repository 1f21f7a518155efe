// StepReporter: the losses and times of training steps, read back without making the host wait for the
// device.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "convoy/apps/train/train_context.h"
#include "convoy/apps/train/train_step.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/engine/optim/loss_scaler.h"
#include "convoy/engine/tensor/tensor.h"
#include "convoy/engine/training/callback.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy {

/// Steps whose losses and times are being copied to the host.
class RecordedSteps {
 public:
  std::int64_t size() const { return std::ssize(steps_); }
  /// Returns whether results() would not block.
  bool ready() const { return !values_ || values_->ready(); }
  /// Returns the result of each step. Blocks until the device has completed them.
  std::vector<training::StepResult> results() const;
  /// Returns the time of the steps, without pauses. Blocks until the device has completed them.
  double seconds() const;

 private:
  friend class StepRecorder;
  using Mark = std::shared_ptr<Event>;
  struct Step {
    training::StepResult result;  // without the loss and the count
    std::size_t parts;            // number of micro-batches; the loss of the step is their sum
  };

  std::vector<Step> steps_;
  std::unique_ptr<Readback> values_;  // a loss and a count for each micro-batch; null without steps
  std::vector<std::pair<Mark, Mark>> intervals_;  // between pauses, on the device's clock
};

/// Collects the losses of steps, their counts of correct samples and time marks in device memory.
class StepRecorder {
 public:
  /// Has room for losses of type `dtype` of `capacity` micro-batches between two calls of take(). With a
  /// communicator, take() sums the losses and counts over all ranks.
  StepRecorder(const DeviceContext& device, DType dtype, std::int64_t capacity,
               dist::Communicator* comm = nullptr);

  /// Starts the time before a step. Does nothing if it is running.
  void run();
  /// Stops the time after a step. Does nothing if it is stopped.
  void pause();
  /// Copies the results of the micro-batches of a step, whose position is `step`. Throws UsageError if
  /// full(parts.size()). Does not block.
  void add(const training::StepResult& step, const std::vector<MicroBatchResult>& parts);
  /// Returns whether there is no room for another `parts` micro-batches.
  bool full(std::size_t parts) const {
    return next_ + 2 * static_cast<std::int64_t>(parts) > values_.size(0);
  }
  /// Returns all steps and times since the last call. The time remains running or stopped. Collective if
  /// there is a communicator. Does not block.
  RecordedSteps take();

 private:
  RecordedSteps::Mark mark() const;

  DeviceContext device_;
  dist::Communicator* comm_;
  Tensor values_;  // a loss and a count for each micro-batch; the count is NaN if there is none
  std::int64_t next_ = 0;
  RecordedSteps::Mark begin_;  // of the current interval; null while stopped
  RecordedSteps recorded_;
};

/// Results of steps that the device has completed.
struct CompletedSteps {
  std::vector<training::StepResult> results;  // in order; the last one may have measurements, without losses
  std::optional<optim::LossScaler::State> scale;  // nullopt without loss scaling
  double seconds = 0;                             // on the device's clock
};

/// Measures training steps and delivers their results in order. The host does not wait for a GPU during a
/// step: the results of a window of steps (--log-every) follow once the GPU has completed it. At most one
/// window is pending, which limits how far the host runs ahead.
class StepReporter {
 public:
  /// Calls `on_completed`, which may throw, with the results of all steps in order. `scaler` is null without
  /// loss scaling. All references must outlive this object.
  StepReporter(const TrainContext& context, const TrainStep& step, data::DataLoader& loader,
               optim::LossScaler* scaler, std::int64_t total_steps,
               std::function<void(CompletedSteps&)> on_completed);
  /// Delivers complete results and starts the time of a step, before its data are loaded. Collective.
  void begin_step();
  /// Adds a step, and delivers complete results. Collective if the step is measured.
  void end_step(const training::StepResult& step, const std::vector<MicroBatchResult>& results);

  /// Stops the time until the next begin_step(), blocks until the device has completed all steps, and
  /// delivers their results. Collective.
  void synchronize();

 private:
  /// The time of some steps.
  struct Times {
    std::int64_t steps = 0, samples = 0;
    double seconds = 0;
  };
  /// The steps of a measurement that the device has not yet completed.
  struct Pending {
    RecordedSteps steps;
    training::StepMeasurements measured;
    Times before;                                       // of steps of the window that are delivered already
    std::unique_ptr<optim::LossScaler::Reading> scale;  // null without loss scaling
  };
  enum class Wait : bool { no, yes };

  /// Returns the step that is measured after `step` without --log-every: 1, 2, 5 or 10, then by time, and at least 50
  /// in a training. Collective.
  std::int64_t next_after(std::int64_t step);
  void measure();
  /// Delivers the pending steps, unless they are not complete and `wait` is no.
  void deliver(Wait wait);
  /// Delivers steps, the last one with `measured` unless it is null. Adds their time to `times`.
  void complete(const RecordedSteps& steps, const std::optional<optim::LossScaler::State>& scale,
                training::StepMeasurements* measured, Times& times);

  const TrainContext& context_;
  const TrainStep& step_;
  data::DataLoader& loader_;
  optim::LossScaler* scaler_;
  std::int64_t total_steps_;
  std::function<void(CompletedSteps&)> on_completed_;

  StepRecorder recorder_;
  std::optional<Pending> pending_;
  // Without --log-every:
  std::int64_t measured_step_ = 0, next_measured_ = 0;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now(), measured_at_ = began_;
  // Of the steps since the last measurement:
  Times delivered_;     // by synchronize()
  double comm_ms_ = 0;  // CPU only: the communication time of a step is known at its end
};

}  // namespace convoy
